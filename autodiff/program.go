package autodiff

import (
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// program is part of a graph made flat: a list of prepared instructions over numbered slots. It is immutable and holds no
// values, so any number of runs may be under way at once; the memory of a run comes from the device's pool and goes back to it at the last use.
type program struct {
	name  string
	slots int
	given []int // slot of each input; inputs are borrowed
	steps []step
	outs  []int // slot of each output; the same slot may appear twice, and may be an input
	types []kernels.Type
	idle  sync.Pool // of *scratch
}

// scratch is what a run needs and does not give away.
type scratch struct {
	bufs  []*device.Buffer // by slot
	owned []bool           // by slot: the run holds a reference of its own
	ins   []*device.Buffer
}

func (p *program) scratch() *scratch {
	if s, ok := p.idle.Get().(*scratch); ok {
		return s
	}
	return &scratch{bufs: make([]*device.Buffer, p.slots), owned: make([]bool, p.slots)}
}

// release drops what the run holds of a slot.
func (s *scratch) release(slot int) {
	if s.owned[slot] {
		s.owned[slot] = false
		_ = s.bufs[slot].Release() // the reference from Alloc
	}
}

// end gives the scratch back, without the references in it.
func (p *program) end(s *scratch) {
	clear(s.bufs)
	clear(s.ins)
	p.idle.Put(s)
}

type step struct {
	kernel kernels.Kernel
	instr  kernels.Instr
	bytes  int
	out    int
	ins    []int
	dead   []int // slots whose last use this is
}

// compile flattens what outs need, taking the values of given as they come. Reshapes cost nothing: the result shares its
// operand's slot.
func (g *Graph) compile(name string, backend kernels.Backend, given, outs []*gorgonia.Node) (*program, error) {
	p := &program{name: name}
	slot := map[*gorgonia.Node]int{}
	for _, n := range given {
		if _, dup := slot[n]; !dup {
			slot[n] = p.slots
			p.slots++
		}
		p.given = append(p.given, slot[n])
	}
	borrowed := p.slots
	live := g.reachable(slot, outs)
	for _, n := range g.order {
		if _, have := slot[n]; have || !live[n] {
			continue
		}
		op, ok := n.Op().(*Op)
		if !ok {
			return nil, fmt.Errorf("%w: %s: the result depends on %s, which is not an input", ErrFunction, name, n.Name())
		}
		in := g.operands(n)
		for j, x := range in {
			if _, have := slot[x]; !have {
				return nil, fmt.Errorf("%s: %v: %w", name, op, foreignNode(j, x))
			}
		}
		if _, alias := op.Instr.(kernels.Reshape); alias {
			slot[n] = slot[in[0]]
			continue
		}
		k, err := backend.Prepare(op.Instr, op.In)
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %w", name, op, err)
		}
		s := step{kernel: k, instr: op.Instr, bytes: op.Out.Bytes(), out: p.slots}
		for _, x := range in {
			s.ins = append(s.ins, slot[x])
		}
		slot[n] = p.slots
		p.slots++
		p.steps = append(p.steps, s)
	}
	for _, o := range outs {
		s, ok := slot[o]
		if !ok {
			return nil, fmt.Errorf("%w: %s: a result is not part of the graph", ErrFunction, name)
		}
		p.outs = append(p.outs, s)
		p.types = append(p.types, g.types[o])
	}
	p.plan(borrowed)
	return p, nil
}

// reachable is what outs depend on, stopping at the nodes that are given.
func (g *Graph) reachable(given map[*gorgonia.Node]int, outs []*gorgonia.Node) map[*gorgonia.Node]bool {
	live := map[*gorgonia.Node]bool{}
	stack := append([]*gorgonia.Node{}, outs...)
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if _, have := given[n]; have || live[n] {
			continue
		}
		live[n] = true
		stack = append(stack, g.operands(n)...)
	}
	return live
}

// plan finds the last use of every slot that a run owns and that is not a result.
func (p *program) plan(borrowed int) {
	keep := make([]bool, p.slots)
	for _, o := range p.outs {
		keep[o] = true
	}
	seen := make([]bool, p.slots)
	for i := len(p.steps) - 1; i >= 0; i-- {
		s := &p.steps[i]
		for _, x := range append([]int{s.out}, s.ins...) {
			if x >= borrowed && !keep[x] && !seen[x] {
				seen[x] = true
				s.dead = append(s.dead, x)
			}
		}
	}
}

// run computes the outputs on dev. The inputs stay the caller's; each output carries one reference for the caller, also
// where it is an input or appears twice. No panic of a kernel gets past here.
func (p *program) run(dev device.Device, in []*device.Buffer) (out []*device.Buffer, err error) {
	s := p.scratch()
	defer p.end(s)
	at := -1
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		if err == nil {
			return
		}
		for slot := range s.owned {
			s.release(slot)
		}
		if at >= 0 && len(p.steps) > 1 { // a single one is the function itself
			err = fmt.Errorf("%s, instruction %d (%v): %w", p.name, at, p.steps[at].instr, err)
		}
		out = nil
	}()
	for i, slot := range p.given {
		s.bufs[slot] = in[i]
	}
	for i := range p.steps {
		step := &p.steps[i]
		at = i
		if s.bufs[step.out], err = dev.Alloc(step.bytes); err != nil {
			return nil, err
		}
		s.owned[step.out] = true
		s.ins = s.ins[:0]
		for _, x := range step.ins {
			s.ins = append(s.ins, s.bufs[x])
		}
		if err = step.kernel.Run(s.bufs[step.out:step.out+1], s.ins); err != nil {
			return nil, err
		}
		for _, x := range step.dead {
			s.release(x)
		}
	}
	out = make([]*device.Buffer, len(p.outs))
	for i, slot := range p.outs {
		if s.owned[slot] {
			s.owned[slot] = false // the run's reference becomes the caller's
			out[i] = s.bufs[slot]
		} else {
			out[i] = s.bufs[slot].Retain()
		}
	}
	return out, nil
}
