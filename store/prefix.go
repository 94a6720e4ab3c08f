package store

import (
	"context"
	"errors"
)

// Prefix is a view of another store in which every key k is the key prefix/k of that store. Views nest, outer prefix
// last: NewPrefix("b", NewPrefix("a", s)) has its key k at a/b/k.
//
// NumKeys counts the keys of the whole store. Errors name keys with their prefix.
type Prefix struct {
	prefix string
	under  Store
	life   context.Context
	end    context.CancelCauseFunc
}

var _ Store = (*Prefix)(nil)

// NewPrefix makes a view of s. It does not own s: closing the view ends the calls made through it and leaves s open.
func NewPrefix(prefix string, s Store) *Prefix {
	life, end := context.WithCancelCause(context.Background())
	return &Prefix{prefix: prefix + "/", under: s, life: life, end: end}
}

// Underlying is the store that the view looks at.
func (p *Prefix) Underlying() Store { return p.under }

// begin makes a context that ends with c and with the view, and the key in the store below.
func (p *Prefix) begin(c context.Context, name string, keys ...string) (context.Context, func(), []string, error) {
	fail := func(err error) (context.Context, func(), []string, error) {
		return nil, nil, nil, (&Operation{name: name, keys: keys}).Fail(err)
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
func through[T any](c context.Context, p *Prefix, name, key string, f func(context.Context, string) (T, error)) (T, error) {
	c, done, keys, err := p.begin(c, name, key)
	if err != nil {
		return *new(T), err
	}
	defer done()
	return f(c, keys[0])
}

// Set implements Store.
func (p *Prefix) Set(c context.Context, key string, value []byte) error {
	_, err := through(c, p, "set", key, func(c context.Context, k string) (struct{}, error) {
		return struct{}{}, p.under.Set(c, k, value)
	})
	return err
}

// Get implements Store.
func (p *Prefix) Get(c context.Context, key string) ([]byte, error) {
	return through(c, p, "get", key, func(c context.Context, k string) ([]byte, error) { return p.under.Get(c, k) })
}

// Add implements Store.
func (p *Prefix) Add(c context.Context, key string, delta int64) (int64, error) {
	return through(c, p, "add", key, func(c context.Context, k string) (int64, error) {
		return p.under.Add(c, k, delta)
	})
}

// CompareSet implements Store.
func (p *Prefix) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	return through(c, p, "compare_set", key, func(c context.Context, k string) ([]byte, error) {
		return p.under.CompareSet(c, k, expected, desired)
	})
}

// Delete implements Store.
func (p *Prefix) Delete(c context.Context, key string) (bool, error) {
	return through(c, p, "delete", key, func(c context.Context, k string) (bool, error) { return p.under.Delete(c, k) })
}

// Check implements Store.
func (p *Prefix) Check(c context.Context, keys ...string) (bool, error) {
	c, done, keys, err := p.begin(c, "check", keys...)
	if err != nil {
		return false, err
	}
	defer done()
	return p.under.Check(c, keys...)
}

// Wait implements Store.
func (p *Prefix) Wait(c context.Context, keys ...string) error {
	c, done, keys, err := p.begin(c, "wait", keys...)
	if err != nil {
		return err
	}
	defer done()
	return p.under.Wait(c, keys...)
}

// NumKeys implements Store.
func (p *Prefix) NumKeys(c context.Context) (int64, error) {
	c, done, _, err := p.begin(c, "num_keys")
	if err != nil {
		return 0, err
	}
	defer done()
	return p.under.NumKeys(c)
}

// Close ends the calls made through the view. The store below stays open.
func (p *Prefix) Close() error {
	p.end(ErrClosed)
	return nil
}
