package autodiff

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// ErrGorgonia says that something of Gorgonia's cannot be imported.
var ErrGorgonia = errors.New("cannot be taken from Gorgonia")

// FromGorgonia makes a function of a graph that was built with Gorgonia's own functions, so that an
// existing model runs and trains here, on any device and across workers. Its arguments are inputs,
// data and parameters alike, and its results are outputs; it is a Func as those of [Define], but
// takes only tensors of exactly the dtypes and shapes that the inputs have in the graph (an int of
// Gorgonia's is an int64). [FromGorgoniaParams] makes the parameters' tensors.
//
// Inputs may be any nodes, also results of ops: the graph is cut there. Constants and other leaves
// that have a value become part of the function, with a copy of the value they have now. The graph
// is only read, and not kept: what happens to it later changes nothing.
//
// What a graph holds that cannot be imported is an error (ErrGorgonia) that names the op and says
// what to do. Ops compute what they do on a TapeMachine, but for the gradients of InverseSqrt, of
// OuterProd and upstream of Dropout(x, 0), which are wrong there, and of Max where several elements
// are the largest, which share. Dropout draws other numbers, the same for the forward and the
// backward of a call. BatchNorm in training uses the batch's mean and variance and does not follow
// running ones; otherwise it uses those that the op has now.
func FromGorgonia(inputs, outputs []*gorgonia.Node) (f *Func, err error) {
	if err := lockBuild(); err != nil {
		return nil, opError(fromName, err)
	}
	defer buildMu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic while reading the graph: %v", ErrGorgonia, r)
		}
		if err != nil {
			f, err = nil, opError(fromName, err)
		}
	}()
	t, err := take(inputs, outputs)
	if err != nil {
		return nil, err
	}
	f = &Func{name: fromName, arity: len(inputs), build: t.build, prepare: t.arguments}
	if t.keys > 0 {
		f.random = t
	}
	return f, t.try()
}

// Random is the seed of the random numbers that f draws, and how many it has: those of the dropouts
// of a graph of Gorgonia's. It is 0 and 0 of a function that draws none. Save it with a model, and
// give it to SetRandom of the one that goes on; package nn's State and Load do.
func (f *Func) Random() (seed, uses uint64) {
	if f.random == nil {
		return 0, 0
	}
	return f.random.seed.Load(), f.random.drawn.Load()
}

// SetRandom has f go on with the random numbers of another one, of which it is the [Func.Random].
// No call may be under way.
func (f *Func) SetRandom(seed, uses uint64) {
	if f.random != nil {
		f.random.seed.Store(seed)
		f.random.drawn.Store(uses)
	}
}

const fromName = "FromGorgonia"

// imported is a graph of Gorgonia's as a list of steps that build the same of Weft's ops. Values
// are numbered: first the inputs, then what the function holds itself, then the steps' results.
type imported struct {
	names []string       // of the inputs
	in    []kernels.Type // of the inputs, and of the constants after them
	steps []importedStep
	outs  []int
	keys  int // how many random keys follow the constants

	seed  atomic.Uint64
	drawn atomic.Uint64 // keys so far

	mu        sync.Mutex
	constants map[device.Device][]*Tensor // copies, where they are needed
}

// importedStep is one op. build gets operands that have the types of the graph.
type importedStep struct {
	what  string // for errors
	args  []int
	out   kernels.Type
	build builder
}

// builder builds an op; its result may have another shape than the graph says, with as many
// elements.
type builder func(g *Graph, in []node) node

// build is the body of the function.
func (t *imported) build(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
	values := slices.Grow(slices.Clone(in), len(t.steps))
	for _, s := range t.steps {
		args := make([]node, len(s.args))
		for k, a := range s.args {
			args[k] = values[a]
		}
		y := s.build(g, args)
		if g.err != nil {
			g.err = fmt.Errorf("%w: %s: %w", ErrGorgonia, s.what, g.err)
			return nil
		}
		if have := g.types[y]; have.Dtype != s.out.Dtype || have.Shape.Elems() != s.out.Shape.Elems() {
			g.err = fmt.Errorf("%w: %s: it would give %v, and the graph says %v", ErrGorgonia, s.what, have, s.out)
			return nil
		}
		values = append(values, g.reshapeTo(y, s.out.Shape))
	}
	outs := make([]*gorgonia.Node, len(t.outs))
	for k, o := range t.outs {
		outs[k] = values[o]
	}
	return outs
}

// try builds the function once, so that what is wrong is told at once. The caller holds buildMu.
func (t *imported) try() error {
	g := newGraph()
	g.aside = g.expr
	var in []node
	for _, typ := range t.in {
		in = append(in, g.input(typ))
	}
	t.build(g, in)
	return g.err
}

// arguments checks what a caller gives, and adds what the function holds.
func (t *imported) arguments(in []*Tensor) ([]*Tensor, error) {
	var dev device.Device = device.Host()
	for k, x := range in {
		if !x.typ.Equal(t.in[k]) {
			return nil, fmt.Errorf("%w: argument %d (%s) is %v, and the Gorgonia graph was built for %v", kernels.ErrOperands, k, t.names[k], *x.typ, t.in[k])
		}
		if k == 0 {
			dev = x.dev
		}
	}
	if len(t.in) == len(in) {
		return in, nil
	}
	held, err := t.held(dev)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(in, held)
	for range t.keys {
		key := To(RandomKey(t.seed.Load(), Draw(drawer(in), func() uint64 { return t.drawn.Add(1) })), dev)
		if key.err != nil {
			return nil, key.err
		}
		all = append(all, key)
	}
	return all, nil
}

// drawer is an argument that belongs to the pass, or to the checkpoint, in which random numbers are
// drawn.
func drawer(in []*Tensor) *Tensor {
	if k := slices.IndexFunc(in, func(x *Tensor) bool { return x.owner != nil }); k >= 0 {
		return in[k]
	}
	return nil
}

// held are the constants on a device.
func (t *imported) held(dev device.Device) ([]*Tensor, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held, have := t.constants[dev]
	if have {
		return held, nil
	}
	for _, x := range t.constants[device.Host()] {
		if x = To(x, dev); x.err != nil {
			return nil, x.err
		}
		held = append(held, x)
	}
	t.constants[dev] = held
	return held, nil
}

// typeOfNode is a node's dtype and shape in Weft's words.
func typeOfNode(n *gorgonia.Node) (kernels.Type, error) {
	d, err := weftDtype(n.Dtype())
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
