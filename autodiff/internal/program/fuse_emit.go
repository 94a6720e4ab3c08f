package program

import (
	"slices"

	"github.com/weft-project/weft/kernels"
)

// emit makes the new list: each group is one instruction where it stands.
func (f *fusion) emit() {
	old := f.Insts
	insts := make([]Inst, 0, len(old))
	for k := range old {
		root := f.root(k)
		// The place of a group is the number of one of its members, so each comes once.
		if g := &f.groups[root]; g.at == k {
			insts = append(insts, f.fused(root))
		}
	}
	f.Insts = insts
}

// fused is the instruction that a group becomes.
func (f *fusion) fused(root int) Inst {
	g := &f.groups[root]
	if len(g.members) == 1 {
		return f.Insts[g.members[0]]
	}
	slices.Sort(g.members) // operands come before who reads them
	m := mapMaker{reg: map[Value]int{}}
	if g.product >= 0 {
		m.operand(f.Insts[g.product].Out[0])
	}
	for _, v := range g.ins {
		m.operand(v)
	}
	m.Shape = g.shape
	for _, k := range g.members {
		i := f.Insts[k]
		if _, fold := i.Instr.(kernels.Reduce); !fold && k != g.product {
			m.addStep(i)
		}
	}
	var out []Value
	for _, k := range g.members {
		i := f.Insts[k]
		v := i.Out[0]
		if !f.leaves(root, v) {
			continue
		}
		o := kernels.Out{}
		if op, ok := i.Instr.(kernels.Reduce); ok {
			o.Reg, o.Fold = m.reg[i.In[0]], &op
		} else {
			o.Reg = m.reg[v]
		}
		m.Outs, out = append(m.Outs, o), append(out, v)
	}
	if g.product < 0 {
		return Inst{m.Map, g.ins, out}
	}
	p := f.Insts[g.product]
	then := kernels.MatMulThen{MatMul: p.Instr.(kernels.MatMul), Then: m.Map}
	return Inst{then, slices.Concat(p.In, g.ins), out}
}

// leaves says whether v is read outside of the group, or wanted.
func (f *fusion) leaves(root int, v Value) bool {
	if f.wanted[v] {
		return true
	}
	for _, k := range f.readers[v] {
		if f.root(k) != root {
			return true
		}
	}
	return false
}

// mapMaker numbers registers.
type mapMaker struct {
	kernels.Map
	reg map[Value]int
}

func (m *mapMaker) operand(v Value) { m.reg[v] = len(m.reg) }

// addStep adds an elementwise instruction.
func (m *mapMaker) addStep(i Inst) {
	s := kernels.Step{Op: i.Instr}
	for k, v := range i.In {
		s.Args[k] = m.reg[v]
	}
	m.Steps = append(m.Steps, s)
	m.reg[i.Out[0]] = len(m.reg)
}
