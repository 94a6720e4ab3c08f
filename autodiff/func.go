package autodiff

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/autodiff/internal/cache"
	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/autodiff/internal/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"gorgonia.org/gorgonia"
)

// Func is a differentiable function of tensors. It is compiled when it is first called with given
// dtypes, shapes, kind of device and wanted gradients, and the programs are kept: those that were
// used last, so many at most. A function that needs more says so once, as a warning of slog's
// default logger. Safe for concurrent use.
type Func struct {
	name  string
	arity int // −1: any
	build func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node
	err   error // what is wrong with the definition

	pieces  expr.Pieces                           // for tests; the zero value is the default
	prepare func(in []*Tensor) ([]*Tensor, error) // nil, or checks the arguments and adds what the function holds
	random  *holding                              // nil: it draws no random numbers

	mu     sync.Mutex // also while a program is made
	kept   cache.Bounded[*compile.Function]
	warned bool

	last atomic.Pointer[compile.Function] // that was not among the recent: of a function with one kind of inputs, the one
}

// maxCompiled bounds the programs that one function keeps.
const maxCompiled = 128

// Define makes a function of body, which must be
//
//	func(g *autodiff.Graph, x, w, … *gorgonia.Node) *gorgonia.Node      // or several results
//
// The body runs for every new set of shapes, and only builds: computing with tensors inside it is
// an error. Where memory runs out, perhaps within Backward, it runs again with other sizes, to find
// out which batch would have fitted, so it must not depend on state of its own. What is wrong with
// it is reported by Call.
func Define(name string, body any) *Func {
	f := &Func{name: name}
	v := reflect.ValueOf(body)
	nodeT, graphT := reflect.TypeFor[*gorgonia.Node](), reflect.TypeFor[*Graph]()
	ok := v.IsValid() && v.Kind() == reflect.Func && !v.IsNil() && !v.Type().IsVariadic() &&
		v.Type().NumIn() >= 1 && v.Type().In(0) == graphT && v.Type().NumOut() >= 1
	for i := 1; ok && i < v.Type().NumIn(); i++ {
		ok = v.Type().In(i) == nodeT
	}
	for i := 0; ok && i < v.Type().NumOut(); i++ {
		ok = v.Type().Out(i) == nodeT
	}
	if !ok {
		f.err = &Error{Op: name, At: callsite.Outside().String(), Err: fmt.Errorf(
			"%w: expected func(*autodiff.Graph, ...*gorgonia.Node) *gorgonia.Node with a fixed number of nodes, got %T", ErrFunction, body)}
		return f
	}
	f.arity = v.Type().NumIn() - 1
	f.build = func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		args := []reflect.Value{reflect.ValueOf(g)}
		for _, n := range in {
			args = append(args, reflect.ValueOf(n))
		}
		outs := make([]*gorgonia.Node, 0, 1)
		for _, o := range v.Call(args) {
			outs = append(outs, o.Interface().(*gorgonia.Node))
		}
		return outs
	}
	return f
}

// Name is the name given to Define.
func (f *Func) Name() string { return f.name }

// Call calls a function with one result.
func (f *Func) Call(in ...*Tensor) *Tensor { return f.one(in, true) }

// Evaluate is Call where no gradient is wanted, whatever the inputs require: as of inputs that were
// detached. Nothing is saved, or computed for a backward.
func (f *Func) Evaluate(in ...*Tensor) *Tensor { return f.one(in, false) }

func (f *Func) one(in []*Tensor, grads bool) *Tensor {
	var out [1]*Tensor
	in, p, err := f.find(in, grads)
	switch {
	case err != nil:
	case p.fn.NumResults() != 1:
		err = fmt.Errorf("%w: it has %d results; use CallAll", ErrFunction, p.fn.NumResults())
	default:
		err = call(p.fn, p.dev, p.owner, in, out[:])
	}
	if err != nil {
		return failed(opError(f.name, err))
	}
	return out[0]
}

// CallAll calls the function. The results are as many as the body's; when something is wrong, a
// single one that carries the error.
func (f *Func) CallAll(in ...*Tensor) []*Tensor { return f.all(in, true) }

// EvaluateAll is CallAll as [Func.Evaluate] is Call.
func (f *Func) EvaluateAll(in ...*Tensor) []*Tensor { return f.all(in, false) }

func (f *Func) all(in []*Tensor, grads bool) []*Tensor {
	in, p, err := f.find(in, grads)
	if err == nil {
		outs := make([]*Tensor, p.fn.NumResults())
		if err = call(p.fn, p.dev, p.owner, in, outs); err == nil {
			return outs
		}
	}
	return []*Tensor{failed(opError(f.name, err))}
}

// prepared is how a function is called with given tensors.
type prepared struct {
	fn    *compile.Function
	dev   device.Device
	owner *Arena
}

// find checks the inputs, adds what the function holds, and finds the programs, with gradients if
// these are wanted.
func (f *Func) find(in []*Tensor, grads bool) ([]*Tensor, prepared, error) {
	in, err := f.checked(in)
	if err != nil {
		return in, prepared{}, err
	}
	dev, owner, err := common(in)
	if err != nil {
		return in, prepared{}, err
	}
	fn, err := f.programs(dev, in, grads)
	return in, prepared{fn, dev, owner}, err
}

// checked is the arguments, with what the function holds.
func (f *Func) checked(in []*Tensor) ([]*Tensor, error) {
	if f.err != nil {
		return nil, f.err
	}
	if f.arity >= 0 && len(in) != f.arity {
		return nil, fmt.Errorf("%w: it takes %d tensors, not %d", ErrFunction, f.arity, len(in))
	}
	for i, t := range in {
		if t == nil {
			return nil, fmt.Errorf("operand %d is %w", i, ErrNil)
		}
		if t.err != nil {
			return nil, t.err
		}
	}
	if f.prepare != nil {
		return f.prepare(slices.Clone(in)) // of a copy: in need not be on the heap
	}
	return in, nil
}

// common is the device and the arena of the inputs.
func common(in []*Tensor) (dev device.Device, owner *Arena, err error) {
	dev = onHost
	for i, t := range in {
		if i > 0 && t.dev != dev {
			return nil, nil, fmt.Errorf("%w: %v and %v; move one with To", ErrDevices, dev.ID(), t.dev.ID())
		}
		dev = t.dev
	}
	owner, err = ownerOf(in)
	return dev, owner, err
}

// programs finds or compiles the programs for these inputs.
func (f *Func) programs(dev device.Device, in []*Tensor, grads bool) (*compile.Function, error) {
	at := compile.HomeOf(dev)
	if c := f.last.Load(); c != nil && serves(c, at, in, grads) {
		return c, nil
	}
	h := signature(at, in, grads)
	if c, ok := f.kept.Recent(h); ok && serves(c, at, in, grads) {
		return c, nil
	}
	c, first, err := f.findOrCompile(h, at, dev, in, grads)
	if first { // outside of the lock: the logger is the user's
		slog.Warn("autodiff: a function is compiled for ever new shapes, which is slow; pad its inputs, or make what changes an input",
			"function", f.name, "programs kept", maxCompiled, "called at", callsite.Outside().String())
	}
	return c, err
}

// findOrCompile is programs with a lock. It says whether a program had to go for the first time.
func (f *Func) findOrCompile(h uint64, at compile.Home, dev device.Device, in []*Tensor, grads bool) (c *compile.Function, first bool, err error) {
	if !f.mu.TryLock() {
		if expr.InsideBody() {
			return nil, false, expr.ErrInBody
		}
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	if c, ok := f.kept.Find(h); ok && serves(c, at, in, grads) {
		f.last.Store(c)
		return c, false, nil
	}
	if c, err = f.compile(dev, in, grads); err != nil {
		return nil, false, err
	}
	f.last.Store(c)
	first = f.kept.Put(h, c, maxCompiled) && !f.warned
	f.warned = f.warned || first
	return c, first, nil
}

// signature hashes all that programs are made for.
func signature(at compile.Home, in []*Tensor, grads bool) uint64 {
	h := uint64(at.Kind)
	if at.Only != nil {
		h = cache.Mix(h, uint64(at.Only.ID().Index))
	}
	for _, t := range in {
		flag := uint64(0)
		if grads && t.requiresGrad {
			flag = 1 << 8
		}
		if at.Narrows && t.isParameter() {
			flag |= 1 << 9
		}
		h = cache.Mix(h, uint64(len(t.typ.Shape))<<16|flag|uint64(t.typ.Dtype))
		for _, d := range t.typ.Shape {
			h = cache.Mix(h, uint64(d))
		}
	}
	return h
}

// serves says that the programs are for these inputs.
func serves(c *compile.Function, at compile.Home, in []*Tensor, grads bool) bool {
	if c.Home != at || len(c.Given) != len(in) {
		return false
	}
	for i, t := range in {
		if c.Need[i] != (grads && t.requiresGrad) || !c.Given[i].Equal(*t.typ) || at.Narrows && c.Params[i] != t.isParameter() {
			return false
		}
	}
	return true
}

// compile makes the programs for these inputs.
func (f *Func) compile(dev device.Device, in []*Tensor, grads bool) (*compile.Function, error) {
	s := compile.Spec{Name: f.name, OneOp: f.arity < 0, Device: dev, Wrap: opError, Pieces: f.pieces, In: make([]compile.Input, len(in)),
		Body: func(g *expr.Graph, in []*gorgonia.Node) []*gorgonia.Node { return f.build(&Graph{g}, in) }}
	for i, t := range in {
		s.In[i] = compile.Input{Type: *t.typ, Need: grads && t.requiresGrad, Param: t.isParameter()}
	}
	return compile.New(s)
}

// Explain prints the programs that calls with such inputs run: the forward and, where one of the
// inputs requires a gradient, what it saves and the backward of all results. Each instruction has a
// line, with the ops that were fused into it. Nothing is computed.
func (f *Func) Explain(w io.Writer, in ...*Tensor) error {
	c, back, err := f.served(in)
	if err != nil {
		return err
	}
	if err := c.Forward.Explain(w); err != nil || back == nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "saved for the backward: %s\n\n", c.Saves()); err != nil {
		return err
	}
	return back.Explain(w)
}

// Dot draws the programs that Explain prints, one graph after the other, for Graphviz.
func (f *Func) Dot(w io.Writer, in ...*Tensor) error {
	c, back, err := f.served(in)
	if err != nil {
		return err
	}
	if err := c.Forward.Dot(w); err != nil || back == nil {
		return err
	}
	return back.Dot(w)
}

// served finds the programs for some inputs; the backward is nil where none has a gradient.
func (f *Func) served(in []*Tensor) (c *compile.Function, back *program.Program, err error) {
	in, err = f.checked(in)
	if err != nil {
		return nil, nil, opError(f.name, err)
	}
	dev, _, err := common(in)
	if err == nil {
		c, err = f.programs(dev, in, true)
	}
	if err != nil {
		return nil, nil, opError(f.name, err)
	}
	if !c.Grads {
		return c, nil, nil
	}
	p, err := c.Backward(c.All())
	if err != nil {
		return nil, nil, opError(f.name, err)
	}
	return c, p.Program, nil
}
