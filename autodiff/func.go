package autodiff

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
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

	prepare func(in []*Tensor) ([]*Tensor, error) // nil, or checks the arguments and adds what the function holds
	random  *imported                             // nil: it draws no random numbers

	mu     sync.Mutex // also while a program is made
	kept   shelf[*compiled]
	warned bool

	last atomic.Pointer[compiled] // that was not among the recent: of a function with one kind of inputs, the one
}

// maxCompiled bounds the programs that one function keeps.
const maxCompiled = 128

// Define makes a function of body, which must be
//
//	func(g *autodiff.Graph, x, w, … *gorgonia.Node) *gorgonia.Node      // or several results
//
// The body runs once for every new set of shapes, and only builds: computing with tensors inside it
// is an error. What is wrong with it is reported by Call.
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
		f.err = &Error{Op: name, At: callerOutside(), Err: fmt.Errorf(
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
func (f *Func) Call(in ...*Tensor) *Tensor {
	var out [1]*Tensor
	in, p, err := f.find(in)
	switch {
	case err != nil:
	case len(p.fn.out) != 1:
		err = fmt.Errorf("%w: it has %d results; use CallAll", ErrFunction, len(p.fn.out))
	default:
		err = p.fn.call(p.dev, p.owner, in, out[:])
	}
	if err != nil {
		return failed(opError(f.name, err))
	}
	return out[0]
}

// CallAll calls the function. The results are as many as the body's; when something is wrong, a
// single one that carries the error.
func (f *Func) CallAll(in ...*Tensor) []*Tensor {
	in, p, err := f.find(in)
	if err == nil {
		outs := make([]*Tensor, len(p.fn.out))
		if err = p.fn.call(p.dev, p.owner, in, outs); err == nil {
			return outs
		}
	}
	return []*Tensor{failed(opError(f.name, err))}
}

// prepared is how a function is called with given tensors.
type prepared struct {
	fn    *compiled
	dev   device.Device
	owner *Arena
}

// find checks the inputs, adds what the function holds, and finds the programs.
func (f *Func) find(in []*Tensor) ([]*Tensor, prepared, error) {
	in, err := f.checked(in)
	if err != nil {
		return in, prepared{}, err
	}
	dev, owner, err := common(in)
	if err != nil {
		return in, prepared{}, err
	}
	fn, err := f.programs(dev, in)
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

// body is a frame of its own, which insideBody looks for.
//
//go:noinline
func (g *Graph) body(f *Func, in []*gorgonia.Node) []*gorgonia.Node { return f.build(g, in) }

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
func (f *Func) programs(dev device.Device, in []*Tensor) (*compiled, error) {
	at := homeOf(dev)
	if c := f.last.Load(); c != nil && c.serves(at, in) {
		return c, nil
	}
	h := signature(at, in)
	if c, ok := f.kept.recent(h); ok && c.serves(at, in) {
		return c, nil
	}
	c, first, err := f.findOrCompile(h, at, dev, in)
	if first { // outside of the lock: the logger is the user's
		slog.Warn("autodiff: a function is compiled for ever new shapes, which is slow; pad its inputs, or make what changes an input",
			"function", f.name, "programs kept", maxCompiled, "called at", callerOutside())
	}
	return c, err
}

// findOrCompile is programs with a lock. It says whether a program had to go for the first time.
func (f *Func) findOrCompile(h uint64, at home, dev device.Device, in []*Tensor) (c *compiled, first bool, err error) {
	if !f.mu.TryLock() {
		if insideBody() {
			return nil, false, errInBody
		}
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	if c, ok := f.kept.find(h); ok && c.serves(at, in) {
		f.last.Store(c)
		return c, false, nil
	}
	if c, err = f.compile(dev, in); err != nil {
		return nil, false, err
	}
	f.last.Store(c)
	first = f.kept.put(h, c, maxCompiled) && !f.warned
	f.warned = f.warned || first
	return c, first, nil
}

// home is what programs are made for: a kind of device or, where kernels are loaded into it, one
// device.
type home struct {
	kind    device.Kind
	only    *device.Accelerator
	narrows bool // products round what they read, so that it makes a difference what is a parameter
}

func homeOf(dev device.Device) home {
	h := home{kind: dev.ID().Kind}
	if h.only, _ = dev.(*device.Accelerator); h.only == nil {
		return h
	}
	if c, ok := h.only.Memory().(kernels.Computer); ok {
		n, ok := c.Backend().(kernels.Narrower)
		h.narrows = ok && n.Narrows()
	}
	return h
}

// signature hashes all that programs are made for.
func signature(at home, in []*Tensor) uint64 {
	h := uint64(at.kind)
	if at.only != nil {
		h = mix64(h, uint64(at.only.ID().Index))
	}
	for _, t := range in {
		flag := uint64(0)
		if t.requiresGrad {
			flag = 1 << 8
		}
		if at.narrows && t.isParameter() {
			flag |= 1 << 9
		}
		h = mix64(h, uint64(len(t.typ.Shape))<<16|flag|uint64(t.typ.Dtype))
		for _, d := range t.typ.Shape {
			h = mix64(h, uint64(d))
		}
	}
	return h
}

// serves says that the programs are for these inputs.
func (c *compiled) serves(at home, in []*Tensor) bool {
	if c.home != at || len(c.given) != len(in) {
		return false
	}
	for i, t := range in {
		if c.need[i] != t.requiresGrad || !c.given[i].Equal(*t.typ) || at.narrows && c.params[i] != t.isParameter() {
			return false
		}
	}
	return true
}

// errInBody is given instead of a deadlock.
var errInBody = fmt.Errorf("%w: the body of a function was computing with tensors; it may only build its graph", ErrFunction)

// insideBody says whether this goroutine is building a function's graph. It is asked only where a
// lock is taken already.
func insideBody() bool {
	pcs := make([]uintptr, 128)
	n := runtime.Callers(3, pcs) // from the caller's caller on
	for n == len(pcs) {
		pcs = make([]uintptr, 2*len(pcs))
		n = runtime.Callers(3, pcs)
	}
	frames := runtime.CallersFrames(pcs[:n])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "autodiff.(*Graph).body") {
			return true
		}
		if !more {
			return false
		}
	}
}

// lockBuild takes buildMu, which the body of a function holds already.
func lockBuild() error {
	if !buildMu.TryLock() {
		if insideBody() {
			return errInBody
		}
		buildMu.Lock()
	}
	return nil
}

// compile builds the graph of the body, and then, when others may build theirs, its programs.
func (f *Func) compile(dev device.Device, in []*Tensor) (*compiled, error) {
	c, u, err := f.draw(dev, in)
	if err != nil {
		return nil, err
	}
	return c, c.finish(u)
}

// panicked is the error of a panic, with the line where it happened. Call it where the panic is
// recovered.
func panicked(doing string, r any) error {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for at := false; ; {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if at && !inRuntime {
			return fmt.Errorf("%w: panic while %s: %v, at %s:%d", ErrFunction, doing, r, f.File, f.Line)
		}
		at = at || inRuntime
		if !more {
			return fmt.Errorf("%w: panic while %s: %v", ErrFunction, doing, r)
		}
	}
}

// draw builds the graph and lists the forward. A panic in the body, or in Gorgonia, becomes an
// error.
func (f *Func) draw(dev device.Device, in []*Tensor) (c *compiled, u *program.Unit, err error) {
	if err := lockBuild(); err != nil {
		return nil, nil, err
	}
	defer buildMu.Unlock()
	g := newGraph()
	g.aside = g.expr
	defer func() {
		if r := recover(); r != nil {
			err = g.err // a nil node that the body went on to use is the consequence, not the cause
			if err == nil {
				err = panicked("building the graph", r)
			}
		}
	}()
	b, err := backend.For(dev)
	if err != nil {
		return nil, nil, err
	}
	c = &compiled{name: f.name, graph: g, backend: b, home: homeOf(dev)}
	for _, t := range in {
		c.in = append(c.in, g.input(*t.typ))
		c.given = append(c.given, *t.typ)
		c.need = append(c.need, t.requiresGrad)
		if c.home.narrows {
			c.params = append(c.params, t.isParameter())
		}
	}
	c.out = g.body(f, c.in)
	if g.err != nil {
		return nil, nil, g.err
	}
	for i, o := range c.out {
		if _, ok := g.types[o]; !ok {
			return nil, nil, fmt.Errorf("result %d: %w", i, foreignNode(i, o))
		}
	}
	if f.arity < 0 && len(c.out) == 1 && len(g.order) == len(c.in)+1 { // a primitive is called what it does
		if op, ok := c.out[0].Op().(*Op); ok {
			c.name = op.Instr.String()
		}
	}
	u, err = c.prepare()
	return c, u, err
}
