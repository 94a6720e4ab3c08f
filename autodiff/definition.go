package autodiff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Graph is a Gorgonia graph under construction: the first argument of the body given to [Define].
// Its methods apply Weft's ops to nodes. The first mistake is kept and reported by the call that
// compiles the function; after it, methods return nil.
type Graph struct{ of *expr.Graph }

// Op is an instruction as a node of a Gorgonia graph; it has Gorgonia's methods of an op.
type Op = expr.Op

// Apply applies an instruction with one result to nodes of g.
func (g *Graph) Apply(i kernels.Instr, in ...*gorgonia.Node) *gorgonia.Node {
	return g.of.Apply(i, in...)
}

// ApplyAll applies an instruction to nodes of g and gives a node for each of its results.
func (g *Graph) ApplyAll(i kernels.Instr, in ...*gorgonia.Node) []*gorgonia.Node {
	return g.of.ApplyAll(i, in...)
}

// Type is the dtype and shape of a node of g; the zero Type for any other node.
func (g *Graph) Type(n *gorgonia.Node) kernels.Type { return g.of.Type(n) }

// Err is the first mistake, nil where there is none so far.
func (g *Graph) Err() error { return g.of.Err() }

// ExprGraph is g so far as a Gorgonia graph, to walk or to draw. In a function's body it is a copy,
// with nodes of its own.
func (g *Graph) ExprGraph() *gorgonia.ExprGraph { return g.of.ExprGraph() }

// rank of a node, 0 for a foreign or nil one (Apply will refuse it).
func (g *Graph) rank(n *gorgonia.Node) int { return len(g.Type(n).Shape) }

// Definition says more of a function than [Define] can read from a body's type: inputs of given
// types, tensors that the function holds itself, and random numbers. Package autodiff/gorgonia
// makes one of a Gorgonia graph.
type Definition struct {
	Inputs []kernels.Type // the arguments must have just these
	Names  []string       // of the arguments, for errors
	Held   []*Tensor      // nobody's, on the CPU: the body gets them after the arguments, on their device
	Keys   int            // then so many random keys (see [RandomKey]), fresh ones at every call
	Body   func(g *Graph, in []*gorgonia.Node) ([]*gorgonia.Node, error)
}

// DefineWith makes a function of a definition. The body is run once to see whether it fails.
func DefineWith(name string, d Definition) (*Func, error) {
	if d.Body == nil {
		return nil, opError(name, fmt.Errorf("%w: the definition has no body", ErrFunction))
	}
	h := &holding{Definition: d, on: map[device.Device][]*Tensor{device.Host(): d.Held}}
	f := &Func{name: name, arity: len(d.Inputs), build: h.build, prepare: h.arguments}
	if d.Keys > 0 {
		h.seed.Store(max(rand.Uint64(), 1))
		f.random = h
	}
	if err := h.try(); err != nil {
		return nil, opError(name, err)
	}
	return f, nil
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

// holding is a definition with what its function holds.
type holding struct {
	Definition
	seed  atomic.Uint64
	drawn atomic.Uint64 // keys so far

	mu sync.Mutex
	on map[device.Device][]*Tensor // copies of Held, where they are needed
}

// build is the body of the function.
func (h *holding) build(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
	outs, err := h.Body(g, in)
	if err != nil {
		g.of.Refuse(err)
	}
	return outs
}

// try builds the function once, so that what is wrong is told at once.
func (h *holding) try() error {
	if err := expr.Lock(); err != nil {
		return err
	}
	defer expr.Unlock()
	g := expr.NewBare(opError)
	var in []*gorgonia.Node
	for _, t := range h.Inputs {
		in = append(in, g.Input(t))
	}
	for _, t := range h.Held {
		in = append(in, g.Input(*t.typ))
	}
	for range h.Keys {
		in = append(in, g.Input(kernels.Type{Dtype: device.Int64, Shape: device.Shape{2}}))
	}
	h.build(&Graph{g}, in)
	return g.Err()
}

// arguments checks what a caller gives, and adds what the function holds.
func (h *holding) arguments(in []*Tensor) ([]*Tensor, error) {
	var dev device.Device = device.Host()
	for k, x := range in {
		if !x.typ.Equal(h.Inputs[k]) {
			name := ""
			if k < len(h.Names) {
				name = fmt.Sprintf(" (%s)", h.Names[k])
			}
			return nil, fmt.Errorf("%w: argument %d%s is %v, and the graph was built for %v", kernels.ErrOperands, k, name, *x.typ, h.Inputs[k])
		}
		if k == 0 {
			dev = x.dev
		}
	}
	if len(h.Held) == 0 && h.Keys == 0 {
		return in, nil
	}
	held, err := h.held(dev)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(in, held)
	for range h.Keys {
		key := To(RandomKey(h.seed.Load(), Draw(drawer(in), func() uint64 { return h.drawn.Add(1) })), dev)
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

// held are the tensors that the function holds, on a device.
func (h *holding) held(dev device.Device) ([]*Tensor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, have := h.on[dev]
	if have {
		return held, nil
	}
	for _, x := range h.Held {
		if x = To(x, dev); x.err != nil {
			return nil, x.err
		}
		held = append(held, x)
	}
	h.on[dev] = held
	return held, nil
}
