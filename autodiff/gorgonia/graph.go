package gorgonia

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// ErrImport says that something of Gorgonia's cannot be imported.
var ErrImport = errors.New("cannot be taken from Gorgonia")

// From makes a function of a graph that was built with Gorgonia's own functions, so that an
// existing model runs and trains here, on any device and across workers. Its arguments are inputs,
// data and parameters alike, and its results are outputs; it is a Func as those of
// [autodiff.Define], but takes only tensors of exactly the dtypes and shapes that the inputs have
// in the graph (an int of Gorgonia's is an int64). [FromParams] makes the parameters' tensors.
//
// Inputs may be any nodes, also results of ops: the graph is cut there. Constants and other leaves
// that have a value become part of the function, with a copy of the value they have now. The graph
// is only read, and not kept: what happens to it later changes nothing.
//
// What a graph holds that cannot be imported is an error (ErrImport) that names the op and says
// what to do. Ops compute what they do on a TapeMachine, but for the gradients of InverseSqrt, of
// OuterProd and upstream of Dropout(x, 0), which are wrong there, and of Max where several elements
// are the largest, which share. Dropout draws other numbers, the same for the forward and the
// backward of a call. BatchNorm in training uses the batch's mean and variance and does not follow
// running ones; otherwise it uses those that the op has now.
func From(inputs, outputs []*gorgonia.Node) (f *autodiff.Func, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, err = nil, failure(fromName, fmt.Errorf("%w: panic while reading the graph: %v", ErrImport, r))
		}
	}()
	t, err := read(inputs, outputs)
	if err != nil {
		return nil, failure(fromName, err)
	}
	return autodiff.DefineWith(fromName, autodiff.Definition{Inputs: t.in, Names: t.names, Held: t.leaves, Keys: t.keys, Body: t.build})
}

const fromName = "gorgonia.From"

// read makes steps of a graph, which nobody may build on meanwhile.
func read(inputs, outputs []*gorgonia.Node) (*imported, error) {
	if err := expr.Lock(); err != nil {
		return nil, err
	}
	defer expr.Unlock()
	return take(inputs, outputs)
}

// failure wraps err once with the function that the user called, and where.
func failure(op string, err error) error {
	var have *autodiff.Error
	if errors.As(err, &have) {
		return err
	}
	return &autodiff.Error{Op: op, At: callsite.Outside().String(), Err: err}
}

// imported is a graph of Gorgonia's as a list of steps that build the same of Weft's ops. Values
// are numbered: first the inputs, then what the function holds itself, then the steps' results.
type imported struct {
	names  []string       // of the inputs
	in     []kernels.Type // of the inputs
	leaves []*autodiff.Tensor
	keys   int // how many random keys follow the leaves
	steps  []importedStep
	outs   []int
}

type node = *gorgonia.Node

// importedStep is one op. build gets operands that have the types of the graph.
type importedStep struct {
	what  string // for errors
	args  []int
	out   kernels.Type
	build builder
}

// builder builds an op; its result may have another shape than the graph says, with as many
// elements.
type builder func(g *autodiff.Graph, in []node) node

// build is the body of the function.
func (t *imported) build(g *autodiff.Graph, in []node) ([]node, error) {
	values := slices.Grow(slices.Clone(in), len(t.steps))
	for _, s := range t.steps {
		args := make([]node, len(s.args))
		for k, a := range s.args {
			args[k] = values[a]
		}
		y := s.build(g, args)
		if err := g.Err(); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrImport, s.what, err)
		}
		if have := g.Type(y); have.Dtype != s.out.Dtype || have.Shape.Elems() != s.out.Shape.Elems() {
			return nil, fmt.Errorf("%w: %s: it would give %v, and the graph says %v", ErrImport, s.what, have, s.out)
		}
		values = append(values, reshapeTo(g, y, s.out.Shape))
	}
	outs := make([]node, len(t.outs))
	for k, o := range t.outs {
		outs[k] = values[o]
	}
	return outs, nil
}

// reshapeTo is x in another shape; x itself where it has that.
func reshapeTo(g *autodiff.Graph, x node, to device.Shape) node {
	if g.Err() != nil || g.Type(x).Shape.Equal(to) {
		return x
	}
	return g.Apply(kernels.Reshape{Shape: slices.Clone(to)}, x)
}

// constant is a scalar of x's dtype.
func constant(g *autodiff.Graph, x node, c float64) node {
	return g.Apply(kernels.Fill{Type: kernels.Type{Dtype: g.Type(x).Dtype}, C: c})
}

// perChannel gives p (c) a shape that broadcasts over axis 1 of an x with so many axes.
func perChannel(g *autodiff.Graph, p, x node) node {
	if g.Err() != nil {
		return nil
	}
	shape := []int{-1}
	for range len(g.Type(x).Shape) - 2 {
		shape = append(shape, 1)
	}
	return g.Reshape(p, shape...)
}

// typeOfNode is a node's dtype and shape in Weft's words.
func typeOfNode(n *gorgonia.Node) (kernels.Type, error) {
	d, err := dtypeOf(n.Dtype())
	if err != nil {
		return kernels.Type{}, err
	}
	t := kernels.Type{Dtype: d, Shape: append(device.Shape{}, n.Shape()...)}
	if len(t.Shape) == 0 && !n.IsScalar() {
		return t, errors.New("it has no shape; give it one by gorgonia.WithShape")
	}
	return t, t.Shape.Check()
}

// nodeName is how errors speak of a node.
func nodeName(n *gorgonia.Node) string {
	if op := n.Op(); op != nil {
		return fmt.Sprintf("node %d, %s (%s)", n.ID(), opText(op), reflect.TypeOf(op))
	}
	return fmt.Sprintf("node %d, %q", n.ID(), n.Name())
}

// opText is an op's String, which may panic.
func opText(op gorgonia.Op) (s string) {
	defer func() {
		if recover() != nil {
			s = "an op"
		}
	}()
	return op.String()
}
