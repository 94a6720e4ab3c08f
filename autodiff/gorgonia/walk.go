package gorgonia

import (
	"fmt"
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/kernels"
)

// take reads a graph. The caller holds the lock on building.
func take(inputs, outputs []*gorgonia.Node) (*imported, error) {
	if err := sameGraph(inputs, outputs); err != nil {
		return nil, err
	}
	t := &imported{}
	slot, typ := map[*gorgonia.Node]int{}, map[*gorgonia.Node]kernels.Type{}
	for k, n := range inputs {
		if _, twice := slot[n]; twice {
			return nil, fmt.Errorf("%w: input %d, %q, is given twice; leaves of one name, type and shape are one node in Gorgonia, so name them apart",
				ErrImport, k, n.Name())
		}
		var err error
		if typ[n], err = typeOfNode(n); err != nil {
			return nil, fmt.Errorf("%w: input %d, %s: %w", ErrImport, k, nodeName(n), err)
		}
		slot[n] = k
		t.in, t.names = append(t.in, typ[n]), append(t.names, n.Name())
	}
	order, err := topological(outputs, func(n *gorgonia.Node) []*gorgonia.Node {
		if _, given := slot[n]; given {
			return nil
		}
		return childrenOf(n)
	})
	if err != nil {
		return nil, err
	}
	if err := reached(inputs, outputs, order); err != nil {
		return nil, err
	}
	r := &reader{imported: t, slot: slot, typ: typ}
	return t, r.walk(order, outputs)
}

// sameGraph checks that the nodes exist and belong together.
func sameGraph(inputs, outputs []*gorgonia.Node) error {
	if len(outputs) == 0 || len(outputs) > compile.MaxResults {
		return fmt.Errorf("%w: %d outputs; 1 to %d are possible", ErrImport, len(outputs), compile.MaxResults)
	}
	for k, n := range slices.Concat(outputs, inputs) {
		what := "output"
		if k >= len(outputs) {
			what, k = "input", k-len(outputs)
		}
		switch {
		case n == nil:
			return fmt.Errorf("%w: %s %d is nil", ErrImport, what, k)
		case n.Graph() == nil:
			return fmt.Errorf("%w: %s %d, %s, is in no graph", ErrImport, what, k, nodeName(n))
		case n.Graph() != outputs[0].Graph():
			return fmt.Errorf("%w: %s %d, %s, belongs to another graph than output 0", ErrImport, what, k, nodeName(n))
		}
	}
	return nil
}

// childrenOf lists a node's operands in argument order, duplicates kept. It looks into the node,
// because ExprGraph.From gives those of another node once Gorgonia has removed one from the graph,
// as it does where it replaces log(sigmoid(x)) and the like.
func childrenOf(n *gorgonia.Node) []*gorgonia.Node {
	f := reflect.ValueOf(n).Elem().FieldByName("children")
	cs := make([]*gorgonia.Node, f.Len())
	for k := range cs {
		cs[k] = (*gorgonia.Node)(f.Index(k).UnsafePointer())
	}
	return cs
}

// topological lists what outs depend on, operands first. It keeps a stack of its own, because
// graphs may be deep.
func topological(outs []*gorgonia.Node, children func(*gorgonia.Node) []*gorgonia.Node) ([]*gorgonia.Node, error) {
	const (
		entered = iota + 1
		done
	)
	type frame struct {
		n    *gorgonia.Node
		rest []*gorgonia.Node
	}
	var order []*gorgonia.Node
	var stack []frame
	state := map[*gorgonia.Node]int{}
	for _, o := range outs {
		if state[o] == 0 {
			state[o] = entered
			stack = append(stack, frame{o, children(o)})
		}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.rest) == 0 {
				state[top.n] = done
				order = append(order, top.n)
				stack = stack[:len(stack)-1]
				continue
			}
			c := top.rest[0]
			top.rest = top.rest[1:]
			switch state[c] {
			case entered:
				return nil, fmt.Errorf("%w: %s depends on itself", ErrImport, nodeName(c))
			case 0:
				state[c] = entered
				stack = append(stack, frame{c, children(c)})
			}
		}
	}
	return order, nil
}

// reached checks that every output depends on an input.
func reached(inputs, outputs, order []*gorgonia.Node) error {
	from := map[*gorgonia.Node]bool{}
	for _, n := range inputs {
		from[n] = true
	}
	for _, n := range order {
		from[n] = from[n] || slices.ContainsFunc(childrenOf(n), func(c *gorgonia.Node) bool { return from[c] })
	}
	for k, o := range outputs {
		if !from[o] {
			return fmt.Errorf("%w: output %d, %s, depends on none of the inputs", ErrImport, k, nodeName(o))
		}
	}
	return nil
}

// reader makes steps of nodes.
type reader struct {
	*imported
	slot map[*gorgonia.Node]int
	typ  map[*gorgonia.Node]kernels.Type
	ops  []*opNode
}

// opNode is what is known of an op that is to be imported, and what came of it.
type opNode struct {
	n    *gorgonia.Node
	op   gorgonia.Op
	args []*gorgonia.Node
	in   []kernels.Type // of args
	out  kernels.Type

	err   error // of a field that is not there
	build builder
	held  []*autodiff.Tensor // build gets these after the operands
	keyed bool               // and then a random key
}

// walk goes through nodes, operands first. What the function holds gets its place before any step.
func (r *reader) walk(order, outputs []*gorgonia.Node) error {
	for _, n := range order {
		if _, given := r.slot[n]; given {
			continue
		}
		err := r.node(n)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrImport, nodeName(n), err)
		}
	}
	heldAt := len(r.in) + len(r.leaves)
	for _, o := range r.ops {
		r.leaves = append(r.leaves, o.held...)
		if o.keyed {
			r.keys++
		}
	}
	firstKey := len(r.in) + len(r.leaves)
	firstStep := firstKey + r.keys
	for _, o := range r.ops {
		r.slot[o.n] = firstStep + len(r.steps)
		s := importedStep{what: nodeName(o.n), out: o.out, build: o.build}
		for _, a := range o.args {
			s.args = append(s.args, r.slot[a])
		}
		for range o.held {
			s.args = append(s.args, heldAt)
			heldAt++
		}
		if o.keyed {
			s.args = append(s.args, firstKey)
			firstKey++
		}
		r.steps = append(r.steps, s)
	}
	for _, o := range outputs {
		r.outs = append(r.outs, r.slot[o])
	}
	return nil
}

// node takes one node: a leaf with a value, or an op.
func (r *reader) node(n *gorgonia.Node) (err error) {
	if r.typ[n], err = typeOfNode(n); err != nil {
		return err
	}
	o := &opNode{n: n, op: n.Op(), args: childrenOf(n), out: r.typ[n]}
	if args, over, ok := r.convolution(n); ok {
		o.args, o.build = args, func(g *autodiff.Graph, in []node) node { return g.Conv2d(in[0], in[1], nil, over) }
	}
	for _, a := range o.args {
		o.in = append(o.in, r.typ[a])
	}
	switch v := n.Value(); {
	case o.build != nil:
	case len(o.in) > 0:
		if err := o.chooseBuilder(); err != nil {
			return err
		}
	case kindOf(o.op) == "randomOp":
		return fmt.Errorf("it draws random numbers; make it an input, and give it fresh ones at every call")
	case v == nil:
		return fmt.Errorf("it has no value and is not among the inputs")
	default:
		x := FromValue(v)
		if x.Err() != nil {
			return x.Err()
		}
		if x.Type().Dtype != o.out.Dtype || x.Type().Shape.Elems() != o.out.Shape.Elems() {
			return fmt.Errorf("its value is %v, and the node is %v", x.Type(), o.out)
		}
		if c, ok := number(x); ok {
			o.build = func(g *autodiff.Graph, _ []node) node { return g.Apply(kernels.Fill{Type: o.out, C: c}) }
			break
		}
		if x, err = inShape(x, o.out.Shape); err != nil {
			return err
		}
		r.slot[n] = len(r.in) + len(r.leaves)
		r.leaves = append(r.leaves, x)
		return nil
	}
	r.ops = append(r.ops, o)
	return nil
}

// number is the value of a float of one element.
func number(x *autodiff.Tensor) (float64, bool) {
	if !x.Type().Dtype.IsFloat() || x.Type().Shape.Elems() != 1 {
		return 0, false
	}
	c, err := x.Item()
	return c, err == nil
}
