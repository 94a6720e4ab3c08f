package resilient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// resting is how much longer than for a piece of the state a newcomer waits before it asks for the
// next one, so that it takes a small part of what links and processors do.
const resting = 4

// fetch gets the state from all that have it, each a part.
func (t *Team) fetch(c context.Context, k *catching, m *mail) error {
	if err := k.getList(c, m); err != nil {
		return err
	}
	like, err := t.fits(k.list)
	if err != nil {
		return err
	}
	k.like = like
	var todo []letter
	for i, e := range k.list.Entries {
		to, err := device.Host().Alloc(e.Bytes)
		if err != nil {
			return err
		}
		k.data = append(k.data, to)
		for n := range e.pieces() {
			todo = append(todo, letter{Step: k.base, Entry: i, Piece: n})
		}
	}
	var last error // of a member that did not give what it was asked for
	for len(todo) > 0 {
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, name := range k.sources() {
			all.Go(func() {
				for c.Err() == nil {
					mu.Lock()
					if len(todo) == 0 {
						mu.Unlock()
						return
					}
					l := todo[len(todo)-1]
					todo = todo[:len(todo)-1]
					mu.Unlock()
					began := time.Now()
					err := k.get(c, m, name, l)
					if err != nil { // another one has it
						mu.Lock()
						defer mu.Unlock()
						todo, last = append(todo, l), fmt.Errorf("%s: %w", name, err)
						return
					}
					rest(c, resting*time.Since(began))
				}
			})
		}
		all.Wait()
		if err := c.Err(); err != nil {
			return errors.Join(err, last)
		}
		if len(todo) > 0 {
			m.idle(c, pause)
		}
	}
	return nil
}

// get gets a piece, and compares it with what the list says.
func (k *catching) get(c context.Context, m *mail, from string, l letter) error {
	e := k.list.Entries[l.Entry]
	to, err := k.data[l.Entry].Host()
	if err != nil {
		return err
	}
	to = to[l.Piece*piece : min((l.Piece+1)*piece, e.Bytes)]
	return m.question(c, from, l, func(data []byte) error {
		if len(data) != len(to) || crc32.Checksum(data, castagnoli) != e.Sums[l.Piece] {
			return fmt.Errorf("%w: piece %d of %s, of %s, is another one than that of the others", ErrDifferent, l.Piece, e.Name, from)
		}
		copy(to, data)
		return nil
	})
}

// getList gets the list of the state from all that have it, who must have the same.
func (k *catching) getList(c context.Context, m *mail) error {
	var last error
	for c.Err() == nil {
		lists := map[string][]string{}
		for _, name := range k.sources() {
			var list manifest
			err := m.question(c, name, letter{Step: k.base, Entry: -1}, func(raw []byte) error { return json.Unmarshal(raw, &list) })
			if err == nil && list.digest() == list.Digest {
				k.list = list
				lists[list.Digest] = append(lists[list.Digest], name)
			} else {
				last = fmt.Errorf("the list of the state, of %s: %w", name, errors.Join(err, c.Err()))
			}
		}
		if len(lists) > 1 {
			return fmt.Errorf("%w: they have %d states before step %d: %v", ErrDifferent, len(lists), k.base, lists)
		}
		if len(lists) == 1 {
			return nil
		}
		m.idle(c, pause)
	}
	return errors.Join(c.Err(), last)
}

// fits is the parameter that each entry of a list is like, or what is wrong with the list for this
// member's model and optimizer. It has memory for what they have, and for nothing else.
func (t *Team) fits(list manifest) (all []*autodiff.Tensor, err error) {
	s, err := t.cfg.Optimizer.State()
	if err != nil {
		return nil, err
	}
	like, params := map[string]*autodiff.Tensor{}, map[string]*autodiff.Tensor{}
	for i, name := range t.names {
		params[name], like["p:"+name] = t.params[i], t.params[i]
	}
	for _, group := range s.Meta.Groups {
		for name := range group.Steps {
			for _, slot := range group.Rule.Slots() {
				like["o:"+name+"."+slot.Name] = params[name]
			}
		}
	}
	for _, e := range list.Entries {
		x := like[e.Name]
		if x == nil {
			return nil, fmt.Errorf("%w: the others' state has %q, which this member has not, or twice", ErrDifferent, e.Name)
		}
		if typ := x.Type(); e.DType != typ.Dtype.String() || !slices.Equal(e.Shape, typ.Shape) || e.Bytes != typ.Bytes() || len(e.Sums) != e.pieces() {
			return nil, fmt.Errorf("%w: the others' %q is %s %v of %d bytes in %d pieces; this member's is %v", ErrDifferent, e.Name, e.DType, e.Shape, e.Bytes, len(e.Sums), typ)
		}
		all = append(all, x)
		delete(like, e.Name)
	}
	return all, nil
}
