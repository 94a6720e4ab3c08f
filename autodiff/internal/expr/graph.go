package expr

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Graph is a Gorgonia graph under construction. The first mistake is kept; after it, methods return
// nil.
type Graph struct {
	wrap  func(op string, err error) error // adds the op and the user's line
	expr  *gorgonia.ExprGraph
	order []*gorgonia.Node // in creation order, which is topological
	types map[*gorgonia.Node]kernels.Type
	args  map[*gorgonia.Node][]*gorgonia.Node
	err   error
	known map[*gorgonia.Node][]gradient // of losses in pieces; see pieces.go
	pads  func(m, n, k int) int         // nil, or to what multiple rows of products are made longer; see padded.go

	// aside, where it is set, takes new nodes instead of expr, without edges: Gorgonia looks
	// through all nodes for every edge of a new one.
	aside *gorgonia.ExprGraph
}

// New makes an empty graph. The function adds the op, and where the user is, to an error.
func New(wrap func(op string, err error) error) *Graph {
	return &Graph{wrap: wrap, expr: gorgonia.NewGraph(), types: map[*gorgonia.Node]kernels.Type{}, args: map[*gorgonia.Node][]*gorgonia.Node{}, known: map[*gorgonia.Node][]gradient{}}
}

// NewBare is [New] for a graph that is only listed: Gorgonia gets no edges, which take it long.
func NewBare(wrap func(op string, err error) error) *Graph {
	g := New(wrap)
	g.aside = g.expr
	return g
}

// PadRows has products whose rows are of an odd length be computed with longer ones, of a multiple
// of as many elements as the function says of m rows, n columns and sums of k terms.
func (g *Graph) PadRows(to func(m, n, k int) int) { g.pads = to }

// ExprGraph is g so far as a Gorgonia graph, to walk or to draw. In a function's body it is a copy,
// with nodes of its own.
func (g *Graph) ExprGraph() *gorgonia.ExprGraph {
	if g.aside == nil {
		return g.expr
	}
	whole, copies := New(g.wrap), map[*gorgonia.Node]*gorgonia.Node{}
	for _, n := range g.order {
		op, ok := n.Op().(*Op)
		switch {
		case !ok:
			copies[n] = whole.Input(g.types[n])
		case op.Result == 0:
			in := make([]*gorgonia.Node, len(op.In))
			for k, x := range g.args[n] {
				in[k] = copies[x]
			}
			copies[n] = whole.ApplyAll(op.Instr, in...)[0]
		default: // it came with the first result
			copies[n] = whole.order[len(copies)]
		}
	}
	return whole.expr
}

// Err is the first mistake.
func (g *Graph) Err() error { return g.err }

// Fail keeps a mistake, where it is the first.
func (g *Graph) Fail(op string, err error) *gorgonia.Node {
	if g.err == nil {
		g.err = g.wrap(op, err)
	}
	return nil
}

// Refuse keeps a mistake that says itself what and where it is, in place of an earlier one.
func (g *Graph) Refuse(err error) { g.err = err }

// Nodes are all nodes, operands before what is computed of them. They must not be changed.
func (g *Graph) Nodes() []*gorgonia.Node { return g.order }

// Has says whether the node is one of g's.
func (g *Graph) Has(n *gorgonia.Node) bool {
	_, ok := g.types[n]
	return ok
}

// Type is the dtype and shape of a node of g; the zero Type for any other node.
func (g *Graph) Type(n *gorgonia.Node) kernels.Type { return g.types[n] }

// Input adds a leaf. Gorgonia identifies leaves by name, so every one gets a name of its own.
func (g *Graph) Input(t kernels.Type) *gorgonia.Node {
	name := fmt.Sprintf("in%d", len(g.order))
	var n *gorgonia.Node
	if len(t.Shape) == 0 {
		n = gorgonia.NewScalar(g.expr, gorgoniaDtype(t.Dtype), gorgonia.WithName(name))
	} else {
		n = gorgonia.NewTensor(g.expr, gorgoniaDtype(t.Dtype), len(t.Shape),
			gorgonia.WithShape(t.Shape...), gorgonia.WithName(name))
	}
	g.enter(n, t)
	return n
}

func (g *Graph) enter(n *gorgonia.Node, t kernels.Type) {
	g.order = append(g.order, n)
	g.types[n] = t
}

// Apply applies an instruction with one result to nodes of g.
func (g *Graph) Apply(i kernels.Instr, in ...*gorgonia.Node) *gorgonia.Node {
	outs := g.ApplyAll(i, in...)
	switch {
	case g.err != nil:
		return nil
	case len(outs) != 1:
		return g.Fail(i.String(), fmt.Errorf("%w: it has %d results; use ApplyAll", ErrFunction, len(outs)))
	}
	return outs[0]
}

// Truncate forgets all nodes but the first n.
func (g *Graph) Truncate(n int) {
	for _, x := range g.order[n:] {
		delete(g.types, x)
		delete(g.args, x)
	}
	clear(g.order[n:])
	g.order = g.order[:n]
}

// ApplyAll applies an instruction to nodes of g and gives a node for each of its results.
func (g *Graph) ApplyAll(i kernels.Instr, in ...*gorgonia.Node) []*gorgonia.Node {
	if g.err != nil {
		return nil
	}
	if i == nil {
		g.Fail("Apply", fmt.Errorf("%w: the instruction is nil", ErrFunction))
		return nil
	}
	ts := make([]kernels.Type, len(in))
	for j, n := range in {
		t, ok := g.types[n]
		if !ok {
			g.Fail(i.String(), Foreign(j, n))
			return nil
		}
		ts[j] = t
	}
	outs, err := i.Infer(ts)
	if err != nil {
		g.Fail(i.String(), err)
		return nil
	}
	if g.pads != nil {
		if y := g.padded(i, in); y != nil || g.err != nil {
			return []*gorgonia.Node{y}
		}
	}
	nodes := make([]*gorgonia.Node, len(outs))
	for k, t := range outs {
		op := &Op{Instr: i, In: ts, Out: t, Result: k, graph: g, id: uint32(len(g.order))}
		if nodes[k], err = g.node(op, in); err != nil {
			g.Fail(i.String(), fmt.Errorf("%w: %w", ErrFunction, err))
			return nil
		}
		g.enter(nodes[k], t)
		g.args[nodes[k]] = slices.Clone(in)
	}
	return nodes
}

// node makes the Gorgonia node of an op. ApplyOp takes the graph from the operands.
func (g *Graph) node(op *Op, in []*gorgonia.Node) (*gorgonia.Node, error) {
	to := g.expr
	switch {
	case g.aside != nil:
		to = g.aside
	case len(in) > 0:
		return gorgonia.ApplyOp(op, in...)
	}
	return gorgonia.NewUniqueNode(gorgonia.WithType(nodeType(op.Out)), gorgonia.WithOp(op), gorgonia.In(to), gorgonia.WithShape(op.Out.Shape...)), nil
}

// Foreign is the error for an operand that is not of the graph.
func Foreign(j int, n *gorgonia.Node) error {
	switch {
	case n == nil:
		return fmt.Errorf("%w: operand %d is nil", ErrFunction, j)
	case n.Op() != nil:
		return fmt.Errorf("%w: operand %d comes from Gorgonia's own op %v; use the methods of autodiff.Graph", ErrFunction, j, n.Op())
	}
	return fmt.Errorf("%w: operand %d (%s) belongs to another graph", ErrFunction, j, n.Name())
}

// beside is result k of the instruction whose first result is y: all are added at once, in order.
func (g *Graph) beside(y *gorgonia.Node, k int) *gorgonia.Node {
	return g.order[slices.Index(g.order, y)+k]
}

// Operands lists the children of n in argument order, duplicates kept. They must not be changed.
func (g *Graph) Operands(n *gorgonia.Node) []*gorgonia.Node { return g.args[n] }

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
