package store

import (
	"context"
	"errors"
	"strings"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// Prefix is a view of another store in which every key k is the key prefix/k of that store. Views
// nest, outer prefix last: NewPrefix("b", NewPrefix("a", s)) has its key k at a/b/k.
//
// NumKeys counts the keys of the whole store. Errors name keys with their prefix.
type Prefix interface {
	Store
	// Underlying is the store that the view looks at.
	Underlying() Store
}

type view struct {
	prefix string
	under  Store
	life   context.Context
	end    context.CancelCauseFunc
}

// NewPrefix makes a view of s. It does not own s: closing the view ends the calls made through it
// and leaves s open.
func NewPrefix(prefix string, s Store) Prefix {
	life, end := context.WithCancelCause(context.Background())
	return &view{prefix: prefix + "/", under: s, life: life, end: end}
}

func (p *view) Underlying() Store { return p.under }

// begin makes a context that ends with c and with the view, and the key in the store below.
func (p *view) begin(c context.Context, name string, keys ...string) (context.Context, func(), []string, error) {
	fail := func(err error) (context.Context, func(), []string, error) {
		return nil, nil, nil, (&kv.Operation{Name: name, Keys: keys}).Fail(err)
	}
	if p.under == nil {
		return fail(errors.New("the view has no store"))
	}
	if p.life.Err() != nil {
		return fail(ErrClosed)
	}
	full := make([]string, len(keys))
	for i, k := range keys {
		if k == "" {
			return fail(ErrBadKey)
		}
		full[i] = p.prefix + k
	}
	c, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(p.life, func() { cancel(ErrClosed) })
	return c, func() { stop(); cancel(nil) }, full, nil
}

// through runs f on one key of the store below.
func through[T any](c context.Context, p *view, name, key string, f func(context.Context, string) (T, error)) (T, error) {
	c, done, keys, err := p.begin(c, name, key)
	if err != nil {
		return *new(T), err
	}
	defer done()
	return f(c, keys[0])
}

func through0(c context.Context, p *view, name, key string, f func(context.Context, string) error) error {
	_, err := through(c, p, name, key, func(c context.Context, k string) (struct{}, error) { return struct{}{}, f(c, k) })
	return err
}

// Set implements Store.
func (p *view) Set(c context.Context, key string, value []byte) error {
	return through0(c, p, "set", key, func(c context.Context, k string) error { return p.under.Set(c, k, value) })
}

// Get implements Store.
func (p *view) Get(c context.Context, key string) ([]byte, error) {
	return through(c, p, "get", key, func(c context.Context, k string) ([]byte, error) { return p.under.Get(c, k) })
}

// Add implements Store.
func (p *view) Add(c context.Context, key string, delta int64) (int64, error) {
	return through(c, p, "add", key, func(c context.Context, k string) (int64, error) {
		return p.under.Add(c, k, delta)
	})
}

// CompareSet implements Store.
func (p *view) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	return through(c, p, "compare_set", key, func(c context.Context, k string) ([]byte, error) {
		return p.under.CompareSet(c, k, expected, desired)
	})
}

// Delete implements Store.
func (p *view) Delete(c context.Context, key string) (bool, error) {
	return through(c, p, "delete", key, func(c context.Context, k string) (bool, error) { return p.under.Delete(c, k) })
}

// Check implements Store.
func (p *view) Check(c context.Context, keys ...string) (bool, error) {
	c, done, keys, err := p.begin(c, "check", keys...)
	if err != nil {
		return false, err
	}
	defer done()
	return p.under.Check(c, keys...)
}

// Wait implements Store.
func (p *view) Wait(c context.Context, keys ...string) error {
	c, done, keys, err := p.begin(c, "wait", keys...)
	if err != nil {
		return err
	}
	defer done()
	return p.under.Wait(c, keys...)
}

// NumKeys implements Store.
func (p *view) NumKeys(c context.Context) (int64, error) {
	c, done, _, err := p.begin(c, "num_keys")
	if err != nil {
		return 0, err
	}
	defer done()
	return p.under.NumKeys(c)
}

// ListKeys implements Store: only keys under the prefix, and without it.
func (p *view) ListKeys(c context.Context) ([]string, error) {
	c, done, _, err := p.begin(c, "list_keys")
	if err != nil {
		return nil, err
	}
	defer done()
	all, err := p.under.ListKeys(c)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for _, full := range all {
		if k, ours := strings.CutPrefix(full, p.prefix); ours && k != "" {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// Append implements Store.
func (p *view) Append(c context.Context, key string, value []byte) error {
	return through0(c, p, "append", key, func(c context.Context, k string) error { return p.under.Append(c, k, value) })
}

// MultiGet implements Store.
func (p *view) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	c, done, keys, err := p.begin(c, "multi_get", keys...)
	if err != nil {
		return nil, err
	}
	defer done()
	return p.under.MultiGet(c, keys...)
}

// MultiSet implements Store.
func (p *view) MultiSet(c context.Context, pairs ...Pair) error {
	c, done, keys, err := p.begin(c, "multi_set", state.Command{Op: state.OpMultiSet, Pairs: pairs}.Names()...)
	if err != nil {
		return err
	}
	defer done()
	full := make([]Pair, len(pairs))
	for i, k := range keys {
		full[i] = Pair{Key: k, Value: pairs[i].Value}
	}
	return p.under.MultiSet(c, full...)
}

// Push implements Store.
func (p *view) Push(c context.Context, key string, value []byte) error {
	return through0(c, p, "push", key, func(c context.Context, k string) error { return p.under.Push(c, k, value) })
}

// Pop implements Store.
func (p *view) Pop(c context.Context, key string) ([]byte, error) {
	return through(c, p, "pop", key, func(c context.Context, k string) ([]byte, error) { return p.under.Pop(c, k) })
}

// TryPop implements Store.
func (p *view) TryPop(c context.Context, key string) (value []byte, ok bool, err error) {
	value, err = through(c, p, "pop", key, func(c context.Context, k string) ([]byte, error) {
		var v []byte
		v, ok, err = p.under.TryPop(c, k)
		return v, err
	})
	return value, ok, err
}

// Len implements Store.
func (p *view) Len(c context.Context, key string) (int64, error) {
	return through(c, p, "len", key, func(c context.Context, k string) (int64, error) { return p.under.Len(c, k) })
}

// Barrier implements Store.
func (p *view) Barrier(c context.Context, key string, world int) error {
	return through0(c, p, "barrier", key, func(c context.Context, k string) error { return p.under.Barrier(c, k, world) })
}

// Watch implements Store. Closing the view ends the Watch, too.
func (p *view) Watch(c context.Context, key string) (*Watch, error) {
	c, done, keys, err := p.begin(c, "watch", key)
	if err != nil {
		return nil, err
	}
	below, err := p.under.Watch(c, keys[0])
	if err != nil {
		done()
		return nil, err
	}
	passed := make(chan struct{})
	w, send, end := NewWatch(c, func() {
		below.Stop()
		<-passed
		done()
	})
	go func() {
		defer close(passed)
		for ch := range below.C {
			ch.Key = key
			send(ch)
		}
		end(below.Err())
	}()
	return w, nil
}

// Close ends the calls made through the view. The store below stays open.
func (p *view) Close() error {
	p.end(ErrClosed)
	return nil
}
