package rpc

import (
	"context"
	"fmt"
	"reflect"
)

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
		f.settle(nil, err)
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
