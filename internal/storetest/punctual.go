package storetest

import (
	"context"
	"time"

	"github.com/weft-project/weft/store"
)

// overrun is how long a call may go on when its context is over, on the slowest machine.
const overrun = 30 * time.Second

// punctual is a store whose calls end with their contexts. One that does not is told, and the store
// closed, so that the test ends too.
type punctual struct {
	below   store.Store
	overrun time.Duration
	fail    func(format string, args ...any)
}

var _ store.Store = (*punctual)(nil)

// call is begun before a call; what it returns is for afterwards.
func (p *punctual) call(c context.Context, what string, keys ...string) (ended func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(c, func() {
		t := time.NewTimer(p.overrun)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			p.fail("%s of %.100q goes on %v after its context was over (%v); the store is closed, as that ends its calls", what, keys, p.overrun, context.Cause(c))
			_ = p.Close()
		}
	})
	return func() { stop(); close(done) }
}

func (p *punctual) Set(c context.Context, key string, value []byte) error {
	defer p.call(c, "Set", key)()
	return p.below.Set(c, key, value)
}

func (p *punctual) Get(c context.Context, key string) ([]byte, error) {
	defer p.call(c, "Get", key)()
	return p.below.Get(c, key)
}

func (p *punctual) Add(c context.Context, key string, delta int64) (int64, error) {
	defer p.call(c, "Add", key)()
	return p.below.Add(c, key, delta)
}

func (p *punctual) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	defer p.call(c, "CompareSet", key)()
	return p.below.CompareSet(c, key, expected, desired)
}

func (p *punctual) Delete(c context.Context, key string) (bool, error) {
	defer p.call(c, "Delete", key)()
	return p.below.Delete(c, key)
}

func (p *punctual) Check(c context.Context, keys ...string) (bool, error) {
	defer p.call(c, "Check", keys...)()
	return p.below.Check(c, keys...)
}

func (p *punctual) Wait(c context.Context, keys ...string) error {
	defer p.call(c, "Wait", keys...)()
	return p.below.Wait(c, keys...)
}

func (p *punctual) NumKeys(c context.Context) (int64, error) {
	defer p.call(c, "NumKeys")()
	return p.below.NumKeys(c)
}

func (p *punctual) ListKeys(c context.Context) ([]string, error) {
	defer p.call(c, "ListKeys")()
	return p.below.ListKeys(c)
}

func (p *punctual) Append(c context.Context, key string, value []byte) error {
	defer p.call(c, "Append", key)()
	return p.below.Append(c, key, value)
}

func (p *punctual) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	defer p.call(c, "MultiGet", keys...)()
	return p.below.MultiGet(c, keys...)
}

func (p *punctual) MultiSet(c context.Context, pairs ...store.Pair) error {
	defer p.call(c, "MultiSet")()
	return p.below.MultiSet(c, pairs...)
}

func (p *punctual) Push(c context.Context, key string, value []byte) error {
	defer p.call(c, "Push", key)()
	return p.below.Push(c, key, value)
}

func (p *punctual) Pop(c context.Context, key string) ([]byte, error) {
	defer p.call(c, "Pop", key)()
	return p.below.Pop(c, key)
}

func (p *punctual) TryPop(c context.Context, key string) ([]byte, bool, error) {
	defer p.call(c, "TryPop", key)()
	return p.below.TryPop(c, key)
}

func (p *punctual) Len(c context.Context, key string) (int64, error) {
	defer p.call(c, "Len", key)()
	return p.below.Len(c, key)
}

func (p *punctual) Barrier(c context.Context, key string, world int) error {
	defer p.call(c, "Barrier", key)()
	return p.below.Barrier(c, key, world)
}

func (p *punctual) Watch(c context.Context, key string) (*store.Watch, error) {
	defer p.call(c, "Watch", key)()
	return p.below.Watch(c, key)
}

func (p *punctual) Close() error { return p.below.Close() }
