package rpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/rpc/internal/wire"
)

// Function is a declared function that a worker can serve: what Define and its like return.
type Function interface {
	// Name is what the function is called by.
	Name() string
	// served gives the untyped side; an error says what is wrong with the declaration.
	served() (*handler, error)
}

// handler is a function as the serving side sees it.
type handler struct {
	name    string
	in, out *codec.Codec
	stats   *counts.CallStats
	// call runs the function. It gives what points to the result, or what will give it.
	call func(c context.Context, in *inbound) (out any, later pending, err error)
}

// Func is a function declared with Define or DefineAsync. The same declaration serves and calls.
type Func[In, Out any] struct {
	name    string
	in, out *codec.Codec
	fn      func(context.Context, In) (Out, *Future[Out], error)
	options options
	at      autodiff.Site // of the function's code
	err     error         // what is wrong with the declaration
}

// Define declares a function. In and Out are Go values that may hold tensors (*autodiff.Tensor) and
// references (RRef) anywhere but in interfaces; all fields of their structs must be exported, or
// tagged `cbor:"-"` (or `json:"-"`) where they are to stay. Without its tensors, a value may take 1
// MiB (transport.Limits): bulk data belongs in tensors. The function runs on a goroutine of its own
// for every call. What is wrong with the declaration is reported by Join and by calls.
func Define[In, Out any](name string, fn func(c context.Context, in In) (Out, error), opts ...Option) *Func[In, Out] {
	f := define(name, fn == nil, func(c context.Context, in In) (Out, *Future[Out], error) {
		out, err := fn(c, in)
		return out, nil, err
	})
	for _, o := range opts {
		o(&f.options)
	}
	if f.err == nil && f.options.checkpoint {
		code := reflect.ValueOf(fn).Pointer()
		f.at.File, f.at.Line = runtime.FuncForPC(code).FileLine(code)
		if err := checkpointable(f.in, f.out); err != nil {
			f.err = fmt.Errorf("function %q: %w", name, err)
		}
	}
	return f
}

// DefineAsync declares a function that may give its result later. No goroutine waits while the
// future is pending, and the call does not count against Config.MaxRunning; the context lives until
// the future is done or the deadline has passed. Callers see no difference.
func DefineAsync[In, Out any](name string, fn func(c context.Context, in In) (*Future[Out], error)) *Func[In, Out] {
	return define(name, fn == nil, func(c context.Context, in In) (out Out, later *Future[Out], err error) {
		if later, err = fn(c, in); err == nil && later == nil {
			err = fmt.Errorf("%s returned neither a future nor an error", name)
		}
		return out, later, err
	})
}

// misdeclared says what is wrong with a function. It matches ErrConfig, but leaves the words of
// that to Join.
type misdeclared string

func (m misdeclared) Error() string        { return string(m) }
func (m misdeclared) Is(target error) bool { return target == ErrConfig }

func define[In, Out any](name string, none bool, fn func(context.Context, In) (Out, *Future[Out], error)) *Func[In, Out] {
	f := &Func[In, Out]{name: name, fn: fn}
	if name == "" || len(name) > wire.MaxName {
		f.err = misdeclared(fmt.Sprintf("a function's name has 1 to %d bytes, not %d", wire.MaxName, len(name)))
		return f
	}
	if none {
		f.err = misdeclared(fmt.Sprintf("function %q is nil", name))
		return f
	}
	if f.in, f.err = forms.For(reflect.TypeFor[In]()); f.err == nil {
		f.out, f.err = forms.Result(reflect.TypeFor[Out]())
	}
	if f.err != nil {
		f.err = fmt.Errorf("function %q: %w", name, f.err)
	}
	return f
}

// Name is the name given to Define.
func (f *Func[In, Out]) Name() string { return f.name }

func (f *Func[In, Out]) served() (*handler, error) {
	if f == nil {
		return nil, errors.New("a function is nil")
	}
	if f.err != nil {
		return nil, f.err
	}
	return &handler{name: f.name, in: f.in, out: f.out, call: f.handle}, nil
}

func (f *Func[In, Out]) handle(c context.Context, in *inbound) (any, pending, error) {
	args := new(In)
	if err := (arrived{in.m, f.in, in.h.Pass, in.h.Refs, in.h.Args}).unpack(c, in.w, in.p, args); err != nil {
		return nil, nil, err
	}
	if f.options.checkpoints(c) {
		return f.handleAgain(c, args)
	}
	out := new(Out)
	later, err := f.protect(c, *args, out)
	if later != nil && err == nil {
		return nil, later, nil
	}
	return out, nil, err
}

// protect turns a panic of the function into an error.
func (f *Func[In, Out]) protect(c context.Context, in In, out *Out) (later *Future[Out], err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{r, stack()}
		}
	}()
	*out, later, err = f.fn(c, in)
	return later, err
}

// panicError is what a handler's panic becomes; the stack is for the log of the worker where it
// happened.
type panicError struct {
	value any
	stack []string // a line for each function
}

func (e *panicError) Error() string { return fmt.Sprintf("%v: %v", ErrPanic, e.value) }
func (e *panicError) Unwrap() error { return ErrPanic }

// Call calls the function on a worker (by name, or by Rank) and waits for the result. c must come
// from Worker.Context or Worker.Pass.
func (f *Func[In, Out]) Call(c context.Context, to string, in In) (out Out, err error) {
	w, err := from(c)
	if err != nil {
		return out, fmt.Errorf("%s on %s: %w", f.name, to, err)
	}
	o, err := f.start(c, w, to, &in)
	if err != nil {
		return out, err
	}
	err = o.sendAndWait(f.out, &out)
	return out, err
}

// start packs a call that brings its result here.
func (f *Func[In, Out]) start(c context.Context, w *Worker, to string, in *In) (*outbound, error) {
	err := f.err
	if err == nil {
		err = f.out.Travels()
	}
	if err != nil {
		return nil, w.wrap(to, f.name, err)
	}
	return w.start(c, to, f.request(in))
}

func (f *Func[In, Out]) request(in *In) request {
	return request{kind: wire.KindCall, name: f.name, codec: f.in, arg: in}
}

// Async starts a call and returns at once. The arguments are read before it returns.
func (f *Func[In, Out]) Async(c context.Context, to string, in In) *Future[Out] {
	w, err := from(c)
	var o *outbound
	if err == nil {
		o, err = f.start(c, w, to, &in)
	}
	future := &Future[Out]{what: f.name, on: to}
	if err != nil {
		future.resolve(nil, err)
		return future
	}
	w.calls.pool.Do(func() {
		var out Out
		err := o.sendAndWait(f.out, &out)
		future.resolve(&out, err)
	})
	return future
}

// Remote starts a call whose result stays at the callee, and returns a reference to it at once.
// What goes wrong is reported by whoever uses the reference. In a function, such a call ends with
// it, unless the reference is a part of the result: wait with [RRef.Ready] before you keep the
// reference elsewhere.
func (f *Func[In, Out]) Remote(c context.Context, to string, in In) RRef[Out] {
	w, err := from(c)
	if err == nil && f.err != nil {
		err = w.wrap(to, f.name, f.err)
	}
	if err != nil {
		return RRef[Out]{failedRef(err)}
	}
	return RRef[Out]{w.remote(c, to, f.request(&in))}
}

// Method is a function on a value that a reference refers to; it runs where the value is.
type Method[T, In, Out any] struct{ f *Func[methodArgs[T, In], Out] }

type methodArgs[T, In any] struct {
	Self RRef[T]
	In   In
}

// DefineMethod declares a method of values of type T: fn gets the value itself at its owner, which
// must serve the method. The reference is good for as long as fn runs.
func DefineMethod[T, In, Out any](name string, fn func(c context.Context, self T, in In) (Out, error)) *Method[T, In, Out] {
	args, aerr := forms.For(reflect.TypeFor[In]())
	f := define(name, fn == nil, func(c context.Context, a methodArgs[T, In]) (out Out, _ *Future[Out], err error) {
		if aerr != nil || !args.Has(reflect.ValueOf(&a.In).Elem(), (*pinnable)(a.Self.ref)) { // or they share one count, and it is fn's
			defer a.Self.Release()
		}
		self, err := a.Self.LocalValue(c)
		if err != nil {
			return out, nil, err
		}
		out, err = fn(c, self, a.In)
		return out, nil, err
	})
	return &Method[T, In, Out]{f}
}

// Name is the name given to DefineMethod.
func (m *Method[T, In, Out]) Name() string { return m.f.Name() }

func (m *Method[T, In, Out]) served() (*handler, error) {
	if m == nil {
		return nil, fmt.Errorf("a method is nil")
	}
	return m.f.served()
}

// owner is where the method runs.
func (m *Method[T, In, Out]) owner(c context.Context, on RRef[T]) (string, error) {
	if to := on.Owner(); to != "" {
		return to, nil
	}
	return "", fmt.Errorf("%s: %w", m.Name(), on.Ready(c)) // such a reference never gets ready
}

// Call runs the method at the reference's owner and waits for the result.
func (m *Method[T, In, Out]) Call(c context.Context, on RRef[T], in In) (out Out, err error) {
	to, err := m.owner(c, on)
	if err != nil {
		return out, err
	}
	return m.f.Call(c, to, methodArgs[T, In]{on, in})
}

// Async starts the method and returns at once.
func (m *Method[T, In, Out]) Async(c context.Context, on RRef[T], in In) *Future[Out] {
	to, err := m.owner(c, on)
	if err != nil {
		f := &Future[Out]{what: m.Name()}
		f.resolve(nil, err)
		return f
	}
	return m.f.Async(c, to, methodArgs[T, In]{on, in})
}

// Remote starts the method and keeps the result at the owner.
func (m *Method[T, In, Out]) Remote(c context.Context, on RRef[T], in In) RRef[Out] {
	to, err := m.owner(c, on)
	if err != nil {
		return RRef[Out]{failedRef(err)}
	}
	return m.f.Remote(c, to, methodArgs[T, In]{on, in})
}
