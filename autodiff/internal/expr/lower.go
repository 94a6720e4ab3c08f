package expr

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/program"
)

// Lower lists the instructions that outs need, in the order in which the graph was built.
func (g *Graph) Lower(name string, given, outs []*gorgonia.Node) (*program.Unit, error) {
	u := &program.Unit{Name: name}
	values := make(map[*gorgonia.Node]program.Value, len(given))
	for _, n := range given {
		values[n] = u.Input(g.types[n])
	}
	live := g.Reachable(values, outs)
	var last []program.Value // the results of the instruction before, whose other nodes may follow
	var lastID uint32        // of its first node
	for _, n := range g.order {
		if _, have := values[n]; have || !live[n] {
			continue
		}
		op, ok := n.Op().(*Op)
		if !ok {
			return nil, fmt.Errorf("%w: %s: the result depends on %s, which is not an input", ErrFunction, name, n.Name())
		}
		if first := op.id - uint32(op.Result); last == nil || lastID != first {
			in := g.Operands(n)
			vs := make([]program.Value, len(in))
			for j, x := range in {
				v, have := values[x]
				if !have {
					return nil, fmt.Errorf("%s: %v: %w", name, op, Foreign(j, x))
				}
				vs[j] = v
			}
			var err error
			if last, err = u.Apply(op.Instr, vs...); err != nil {
				return nil, fmt.Errorf("%s: %v: %w", name, op, err)
			}
			lastID = first
		}
		values[n] = last[op.Result]
	}
	for _, o := range outs {
		v, ok := values[o]
		if !ok {
			return nil, fmt.Errorf("%w: %s: a result is not part of the graph", ErrFunction, name)
		}
		u.Results = append(u.Results, v)
	}
	return u, nil
}

// Reachable is what outs depend on, stopping at the nodes that are given.
func (g *Graph) Reachable(given map[*gorgonia.Node]program.Value, outs []*gorgonia.Node) map[*gorgonia.Node]bool {
	live := map[*gorgonia.Node]bool{}
	stack := append([]*gorgonia.Node{}, outs...)
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if _, have := given[n]; have || live[n] {
			continue
		}
		live[n] = true
		stack = append(stack, g.Operands(n)...)
	}
	return live
}
