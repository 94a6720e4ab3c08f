package program

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// rewriting goes through a unit once, in order, and builds its new list of instructions. What reads
// a value then reads what stands for it.
type rewriting struct {
	*Unit
	rule    rule
	by      []int   // by value: which instruction of the new list makes it; −1 for none
	now     []Value // by value: what stands for it
	uses    []int   // by value: how often it was read, or what it stands for
	depth   int
	changed bool
}

// rule gives what stands for the first result of an instruction; false leaves the instruction as it
// is. Its operands are what stands for those it had, and the instruction need not be in the list
// yet.
type rule func(r *rewriting, i Inst) (Value, bool)

// rewrite applies a rule to every instruction, and to those that the rule itself applies. It says
// whether anything changed.
func (u *Unit) rewrite(rule rule) bool {
	r := &rewriting{Unit: u, rule: rule, uses: u.Uses(), now: make([]Value, len(u.Types)), by: make([]int, len(u.Types))}
	for v := range r.now {
		r.now[v], r.by[v] = Value(v), -1
	}
	old := u.Insts
	u.Insts = make([]Inst, 0, len(old))
	for _, i := range old {
		i.In = r.renamed(i.In)
		if v, ok := rule(r, i); ok {
			r.now[i.Out[0]], r.changed = v, true
			r.uses[v] += r.uses[i.Out[0]]
		} else {
			r.emit(i)
		}
	}
	u.Results = r.renamed(u.Results)
	return r.changed
}

// renamed is vs as they stand now; the list itself where nothing changes.
func (r *rewriting) renamed(vs []Value) []Value {
	for k, v := range vs {
		if r.now[v] != v {
			vs = slices.Clone(vs)
			for ; k < len(vs); k++ {
				vs[k] = r.now[vs[k]]
			}
			break
		}
	}
	return vs
}

func (r *rewriting) emit(i Inst) {
	for _, v := range i.Out {
		r.by[v] = len(r.Insts)
	}
	r.Insts = append(r.Insts, i)
}

// maxDepth bounds how often what a rule applies is rewritten in its turn.
const maxDepth = 16

// apply applies an instruction with one result, by way of the rule. It fails where the instruction
// does not fit its operands.
func (r *rewriting) apply(i kernels.Instr, in ...Value) (Value, bool) {
	if r.depth < maxDepth {
		r.depth++
		v, ok := r.rule(r, Inst{Instr: i, In: in})
		r.depth--
		if ok {
			return v, true
		}
	}
	vs, err := r.Apply(i, in...)
	if err != nil || len(vs) != 1 {
		return 0, false
	}
	r.by = append(r.by, len(r.Insts)-1)
	r.now, r.uses = append(r.now, vs[0]), append(r.uses, 0)
	return vs[0], true
}

// then is do of i after first, both with one operand.
func (r *rewriting) then(first, i kernels.Instr, x Value) (Value, bool) {
	v, ok := r.apply(first, x)
	if !ok {
		return 0, false
	}
	return r.apply(i, v)
}

// made is the instruction that makes v, the zero Inst for what is given.
func (r *rewriting) made(v Value) Inst {
	if k := r.by[v]; k >= 0 {
		return r.Insts[k]
	}
	return Inst{}
}

// alone says that nothing but the one who asks reads v.
func (r *rewriting) alone(v Value) bool { return r.uses[v] <= 1 }

func (r *rewriting) shape(v Value) device.Shape { return r.Types[v].Shape }

// from is the instruction of type I that makes v, and its first operand.
func from[I kernels.Instr](r *rewriting, v Value) (i I, x Value, ok bool) {
	m := r.made(v)
	if i, ok = m.Instr.(I); ok && len(m.In) > 0 {
		x = m.In[0]
	}
	return i, x, ok
}
