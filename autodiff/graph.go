package autodiff

import (
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// buildMu serialises everything that builds Gorgonia graphs: Gorgonia keeps lazily filled package variables.
var buildMu sync.Mutex

// Graph is a Gorgonia graph under construction: the first argument of the body given to [Define]. Its methods apply
// Weft's ops to nodes. The first mistake is kept and reported by the call that compiles the function; after it, methods
// return nil.
type Graph struct {
	expr  *gorgonia.ExprGraph
	order []*gorgonia.Node // in creation order, which is topological
	types map[*gorgonia.Node]kernels.Type
	err   error
}

func newGraph() *Graph {
	return &Graph{expr: gorgonia.NewGraph(), types: map[*gorgonia.Node]kernels.Type{}}
}

// ExprGraph is the Gorgonia graph behind g, to walk or to draw.
func (g *Graph) ExprGraph() *gorgonia.ExprGraph { return g.expr }

// Type is the dtype and shape of a node of g; the zero Type for any other node.
func (g *Graph) Type(n *gorgonia.Node) kernels.Type { return g.types[n] }

// input adds a leaf. Gorgonia identifies leaves by name, so every one gets a name of its own.
func (g *Graph) input(t kernels.Type) *gorgonia.Node {
	name := fmt.Sprintf("in%d", len(g.order))
	var n *gorgonia.Node
	if len(t.Shape) == 0 {
		n = gorgonia.NewScalar(g.expr, gorgoniaDtype(t.Dtype), gorgonia.WithName(name))
	} else {
		n = gorgonia.NewTensor(g.expr, gorgoniaDtype(t.Dtype), len(t.Shape),
			gorgonia.WithShape(t.Shape...), gorgonia.WithName(name))
	}
	g.add(n, t)
	return n
}

func (g *Graph) add(n *gorgonia.Node, t kernels.Type) {
	g.order = append(g.order, n)
	g.types[n] = t
}

// Apply applies an instruction to nodes of g.
func (g *Graph) Apply(i kernels.Instr, in ...*gorgonia.Node) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	if i == nil {
		return g.fail("Apply", fmt.Errorf("%w: the instruction is nil", ErrFunction))
	}
	ts := make([]kernels.Type, len(in))
	for j, n := range in {
		t, ok := g.types[n]
		if !ok {
			return g.fail(i.String(), foreignNode(j, n))
		}
		ts[j] = t
	}
	outs, err := i.Infer(ts)
	if err == nil && len(outs) != 1 {
		err = fmt.Errorf("%w: it has %d results; ops of a graph have one", ErrFunction, len(outs))
	}
	if err != nil {
		return g.fail(i.String(), err)
	}
	op := &Op{Instr: i, In: ts, Out: outs[0], graph: g, id: uint32(len(g.order))}
	var n *gorgonia.Node
	if len(in) == 0 { // ApplyOp takes the graph from the operands
		n = gorgonia.NewUniqueNode(gorgonia.WithType(nodeType(op.Out)), gorgonia.WithOp(op), gorgonia.In(g.expr), gorgonia.WithShape(op.Out.Shape...))
	} else if n, err = gorgonia.ApplyOp(op, in...); err != nil {
		return g.fail(i.String(), fmt.Errorf("%w: %w", ErrFunction, err))
	}
	g.add(n, outs[0])
	return n
}

func foreignNode(j int, n *gorgonia.Node) error {
	switch {
	case n == nil:
		return fmt.Errorf("%w: operand %d is nil", ErrFunction, j)
	case n.Op() != nil:
		return fmt.Errorf("%w: operand %d comes from Gorgonia's own op %v; use the methods of autodiff.Graph", ErrFunction, j, n.Op())
	}
	return fmt.Errorf("%w: operand %d (%s) belongs to another graph", ErrFunction, j, n.Name())
}

func (g *Graph) fail(op string, err error) *gorgonia.Node {
	if g.err == nil {
		g.err = opError(op, err)
	}
	return nil
}

// operands lists the children of n in argument order, duplicates kept.
func (g *Graph) operands(n *gorgonia.Node) []*gorgonia.Node {
	it := g.expr.From(n.ID())
	out := make([]*gorgonia.Node, 0, 2)
	for it.Next() {
		out = append(out, it.Node().(*gorgonia.Node))
	}
	return out
}

// unbroadcast undoes broadcasting: it sums gy, of the broadcast shape, down to the operand's shape.
func (g *Graph) unbroadcast(gy *gorgonia.Node, to device.Shape) *gorgonia.Node {
	from := g.types[gy].Shape
	if g.err != nil || from.Equal(to) {
		return gy
	}
	lead := len(from) - len(to)
	var axes []int
	for i, d := range from {
		if i < lead || (to[i-lead] == 1 && d != 1) {
			axes = append(axes, i)
		}
	}
	if len(axes) > 0 {
		gy = g.Apply(kernels.Reduce{Fn: kernels.Sum, Axes: axes}, gy)
	}
	return g.reshapeTo(gy, to)
}

func (g *Graph) reshapeTo(x *gorgonia.Node, to device.Shape) *gorgonia.Node {
	if g.err != nil || g.types[x].Shape.Equal(to) {
		return x
	}
	return g.Apply(kernels.Reshape{Shape: slices.Clone(to)}, x)
}

// rank of a node, 0 for a foreign or nil one (Apply will refuse it).
func (g *Graph) rank(n *gorgonia.Node) int { return len(g.types[n].Shape) }
