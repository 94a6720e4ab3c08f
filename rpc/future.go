package rpc

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/ctx"
)

// Future is a result on its way.
type Future[T any] struct {
	done  chan struct{}
	value T
	err   error
	what  string // for errors
}

// newFuture runs work on a goroutine; work must end when its context does.
func newFuture[T any](what string, work func() (T, error)) *Future[T] {
	f := &Future[T]{done: make(chan struct{}), what: what}
	go func() {
		defer close(f.done)
		f.value, f.err = work()
	}()
	return f
}

// Wait gives the result, every time it is called. When c ends first the call goes on and Wait fails with ErrTimeout or
// the cancellation.
func (f *Future[T]) Wait(c context.Context) (T, error) {
	select {
	case <-f.done:
		return f.value, f.err
	default:
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-c.Done():
		var none T
		return none, fmt.Errorf("waiting for the result of %s: %w", f.what, ctx.AsTimeout(context.Cause(c)))
	}
}

// Done is closed when the result is there.
func (f *Future[T]) Done() <-chan struct{} { return f.done }
