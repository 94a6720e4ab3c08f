package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weft-project/weft/ctx"
)

// Future is a result on its way: of a call, of a Promise, or of what follows another future. It
// stays in its process.
type Future[T any] struct {
	what, on string // for errors

	mu    sync.Mutex
	over  bool
	done  chan struct{} // made when somebody wants to wait
	then  []func()      // called when it is done
	value T
	err   error
}

// pending is a future of any type.
type pending interface {
	// whenDone calls fn when the result is there, at once if it is.
	whenDone(fn func())
	// result gives what points to the value. It must be there.
	result() (any, error)
}

// resolve gives the result, once. A nil value is the zero value. It runs the callbacks.
func (f *Future[T]) resolve(v *T, err error) bool {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return false
	}
	if v != nil {
		f.value = *v
	}
	f.over, f.err = true, err
	then := f.then
	f.then = nil
	if f.done != nil {
		close(f.done)
	}
	f.mu.Unlock()
	for _, fn := range then {
		fn()
	}
	return true
}

func (f *Future[T]) whenDone(fn func()) {
	f.mu.Lock()
	if !f.over {
		f.then = append(f.then, fn)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	fn()
}

func (f *Future[T]) result() (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &f.value, f.err
}

// Done is closed when the result is there.
func (f *Future[T]) Done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done == nil {
		f.done = make(chan struct{})
		if f.over {
			close(f.done)
		}
	}
	return f.done
}

// Wait gives the result, every time it is called. When c ends first the work goes on and Wait fails
// with ErrTimeout or the cancellation.
func (f *Future[T]) Wait(c context.Context) (T, error) {
	f.mu.Lock()
	over, value, err := f.over, f.value, f.err
	f.mu.Unlock()
	if over {
		return value, err
	}
	select {
	case <-f.Done():
		return f.value, f.err // written before Done was closed, and never again
	case <-c.Done():
		return value, fmt.Errorf("waiting for the result of %v: %w", f, ctx.AsTimeout(context.Cause(c)))
	}
}

// String says what the result is of.
func (f *Future[T]) String() string {
	if f.on != "" {
		return f.what + " on " + f.on
	}
	return f.what
}

// OnDone calls fn with the result when it is there, at once if it is. fn must not wait: it runs on
// the goroutine that brings the result, after what was registered before it. Nobody can be told of
// its panic, so that goes to slog.Default; what [Then] and [Handle] give tells of theirs.
func (f *Future[T]) OnDone(fn func(T, error)) {
	f.whenDone(func() {
		defer func() {
			if r := recover(); r != nil {
				logPanic(slog.Default(), "a callback panicked", &panicError{r, stack()}, "of", f.String())
			}
		}()
		fn(f.value, f.err)
	})
}

// Promise is a future that the program resolves itself.
type Promise[T any] struct{ f *Future[T] }

// ErrResolved says that a promise was resolved before.
var ErrResolved = errors.New("the promise is resolved already")

// NewPromise makes a promise; what says what it is of, for errors.
func NewPromise[T any](what string) *Promise[T] { return &Promise[T]{&Future[T]{what: what}} }

// Future is what the promise resolves.
func (p *Promise[T]) Future() *Future[T] { return p.f }

// Resolve gives the value. A second Resolve or Fail changes nothing and fails with ErrResolved.
func (p *Promise[T]) Resolve(v T) error { return p.resolve(&v, nil) }

// Fail gives an error in place of the value.
func (p *Promise[T]) Fail(err error) error {
	if err == nil {
		err = fmt.Errorf("%s failed without an error", p.f.what)
	}
	return p.resolve(nil, err)
}

func (p *Promise[T]) resolve(v *T, err error) error {
	if !p.f.resolve(v, err) {
		return fmt.Errorf("%w: %v", ErrResolved, p.f)
	}
	return nil
}

// Then gives the future of fn applied to the value. Where f fails, so does the result, without fn.
// fn must not wait, as in OnDone; its panic is an error that matches ErrPanic.
func Then[A, B any](f *Future[A], fn func(A) (B, error)) *Future[B] {
	return Handle(f, func(a A, err error) (b B, _ error) {
		if err != nil {
			return b, err
		}
		return fn(a)
	})
}

// Handle is Then with the error, so that fn can put a value in its place.
func Handle[A, B any](f *Future[A], fn func(A, error) (B, error)) *Future[B] {
	out := &Future[B]{what: "what follows " + f.String()}
	f.OnDone(func(a A, err error) {
		b, err := guarded(func() (B, error) { return fn(a, err) })
		out.resolve(&b, err)
	})
	return out
}

// ThenAsync is Then for an fn that gives a future itself, such as another call.
func ThenAsync[A, B any](f *Future[A], fn func(A) (*Future[B], error)) *Future[B] {
	out := &Future[B]{what: "what follows " + f.String()}
	f.OnDone(func(a A, err error) {
		if err != nil {
			out.resolve(nil, err)
			return
		}
		next, err := guarded(func() (*Future[B], error) { return fn(a) })
		if err == nil && next == nil {
			err = fmt.Errorf("%v: neither a future nor an error", out)
		}
		if err != nil {
			out.resolve(nil, err)
			return
		}
		next.OnDone(func(b B, err error) { out.resolve(&b, err) })
	})
	return out
}

func guarded[T any](fn func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{r, stack()}
		}
	}()
	return fn()
}

// All gives the future of all results, in order. It fails with the first error, without waiting for
// the others.
func All[T any](fs ...*Future[T]) *Future[[]T] {
	out := &Future[[]T]{what: fmt.Sprintf("%d futures", len(fs))}
	values := make([]T, len(fs))
	if len(fs) == 0 {
		out.resolve(&values, nil)
	}
	var mu sync.Mutex
	missing := len(fs)
	for i, f := range fs {
		f.OnDone(func(v T, err error) {
			mu.Lock()
			values[i] = v
			missing--
			last := missing == 0
			mu.Unlock()
			if err != nil {
				out.resolve(nil, err)
			} else if last {
				out.resolve(&values, nil)
			}
		})
	}
	return out
}

// WaitAll waits for all results. It returns with the first error, also while others are under way:
// end their context to end them.
func WaitAll[T any](c context.Context, fs ...*Future[T]) ([]T, error) { return All(fs...).Wait(c) }
