package resilient

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
)

// catching is a member that gets the state while it keeps the sums of all steps.
type catching struct {
	base  uint64 // the step before which the state is
	next  uint64 // the step that the first of the queue makes
	queue [][]*device.Buffer
	bytes int
	stop  context.CancelFunc
	done  chan struct{} // closed when the state is here, or why it is not

	list   manifest
	data   [][]byte
	err    error
	loaded bool // into the model

	mu   sync.Mutex
	from []string // workers that have the state
	more chan struct{}
}

// most is how many bytes of sums a newcomer keeps before it has the state.
const most = 4 << 30

// push keeps the sums of a step.
func (k *catching) push(sums []*device.Buffer) {
	kept := make([]*device.Buffer, len(sums))
	for i, b := range sums {
		kept[i] = b.Retain()
		k.bytes += b.Len()
	}
	k.queue = append(k.queue, kept)
}

// startCatching begins to get the state before a step.
func (t *Team) startCatching(base uint64) {
	t.stopCatching()
	c, stop := context.WithCancel(context.Background())
	k := &catching{base: base, next: base, stop: stop, done: make(chan struct{}), more: make(chan struct{}, 1)}
	t.catching = k
	go func() {
		defer close(k.done)
		k.err = k.fetch(c, t.mail)
	}()
}

func (t *Team) stopCatching() {
	k := t.catching
	if k == nil {
		return
	}
	k.stop()
	<-k.done
	for _, sums := range k.queue {
		release(sums)
	}
	t.catching = nil
}

// catchFrom says who has the state.
func (t *Team) catchFrom(names []string) {
	if k := t.catching; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.from = names
		select {
		case k.more <- struct{}{}:
		default:
		}
	}
}

func (k *catching) sources() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.from
}

// caughtUp says whether this member has made all steps that the others have.
func (t *Team) caughtUp() bool {
	return t.catching != nil && t.catching.loaded && len(t.catching.queue) == 0
}

// follow is a step of a member that has no state: it brings zeros, and keeps the sums.
func (t *Team) follow(c context.Context) error {
	if err := t.pursue(); err != nil {
		return err
	}
	if t.plan == nil && t.prev == nil {
		return t.sync(c)
	}
	if t.plan == nil {
		next := t.prev.Next(len(t.layout), 0)
		t.plan, t.prev = &next, nil
	}
	if err := t.attempt(c, work{step: t.m.Step()}); err != nil {
		t.plan = nil
		if !t.mends(c, err) {
			return err
		}
	}
	return nil
}

// pursue makes the steps that were kept, two for each that the others make.
func (t *Team) pursue() error {
	k := t.catching
	if k == nil {
		return nil
	}
	select {
	case <-k.done:
	default:
		if k.bytes > most {
			return fmt.Errorf("%w: %d bytes of sums are here before the state is", ErrBehind, k.bytes)
		}
		return nil
	}
	if k.err != nil {
		return k.err
	}
	if !k.loaded {
		if err := t.load(k.list, k.data); err != nil {
			return err
		}
		k.loaded, k.data = true, nil
		t.m.Loaded()
	}
	for range min(2, len(k.queue)) {
		sums := k.queue[0]
		k.queue = k.queue[1:]
		err := t.make(k.next, sums)
		k.next++
		release(sums)
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch gets the state from all that have it, each a part.
func (k *catching) fetch(c context.Context, m *mail) error {
	if err := k.getList(c, m); err != nil {
		return err
	}
	var todo []letter
	for i, e := range k.list.Entries {
		k.data = append(k.data, make([]byte, e.Bytes))
		for n := range e.pieces() {
			todo = append(todo, letter{Step: k.base, Entry: i, Piece: n})
		}
	}
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
					if err := k.get(c, m, name, l); err != nil { // another one has it
						mu.Lock()
						defer mu.Unlock()
						todo = append(todo, l)
						return
					}
				}
			})
		}
		all.Wait()
		if err := c.Err(); err != nil {
			return err
		}
		if len(todo) > 0 {
			m.wait(c, pause)
		}
	}
	return nil
}

// get gets a piece, and compares it with what the list says.
func (k *catching) get(c context.Context, m *mail, from string, l letter) error {
	data, err := m.ask(c, from, l)
	if err != nil {
		return err
	}
	e := k.list.Entries[l.Entry]
	to := k.data[l.Entry][l.Piece*piece : min((l.Piece+1)*piece, e.Bytes)]
	if len(data) != len(to) || crc32.Checksum(data, castagnoli) != e.Sums[l.Piece] {
		return fmt.Errorf("%w: piece %d of %s, of %s, is another one than that of the others", ErrDifferent, l.Piece, e.Name, from)
	}
	copy(to, data)
	return nil
}

// getList gets the list of the state from all that have it, who must have the same.
func (k *catching) getList(c context.Context, m *mail) error {
	for c.Err() == nil {
		lists := map[string][]string{}
		for _, name := range k.sources() {
			raw, err := m.ask(c, name, letter{Step: k.base, Entry: -1})
			var list manifest
			if err == nil {
				err = json.Unmarshal(raw, &list)
			}
			if err == nil && list.digest() == list.Digest {
				k.list = list
				lists[list.Digest] = append(lists[list.Digest], name)
			}
		}
		if len(lists) > 1 {
			return fmt.Errorf("%w: they have %d states before step %d: %v", ErrDifferent, len(lists), k.base, lists)
		}
		if len(lists) == 1 && k.plausible() {
			return nil
		}
		m.wait(c, pause)
	}
	return c.Err()
}

// plausible says whether a list can be one of a state.
func (k *catching) plausible() bool {
	return !slices.ContainsFunc(k.list.Entries, func(e entry) bool {
		return e.Bytes < 0 || len(e.Name) < 2 || len(e.Sums) != e.pieces()
	})
}
