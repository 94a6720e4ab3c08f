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

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// catching is a member that gets the state while it keeps the sums of all steps. A goroutine of its
// own gets the state, and then makes the steps that were kept.
type catching struct {
	base uint64 // the step before which the state is
	stop context.CancelFunc
	done chan struct{} // closed when the goroutine has ended
	list manifest
	data [][]byte
	more chan struct{} // of capacity 1: there are other sources, or sums

	mu     sync.Mutex
	from   []string // workers that have the state
	queue  [][]*device.Buffer
	bytes  int  // of all that is in the queue
	loaded bool // the state is in the model
	busy   bool // a step is being made
	err    error
}

// most is how many bytes of sums a newcomer keeps before it has made their steps.
const most = 4 << 30

// push keeps the sums of a step.
func (k *catching) push(sums []*device.Buffer) {
	kept := make([]*device.Buffer, len(sums))
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, b := range sums {
		kept[i] = b.Retain()
		k.bytes += b.Len()
	}
	if k.queue = append(k.queue, kept); k.bytes > most && k.err == nil {
		k.err = fmt.Errorf("%w: %d bytes of sums of their steps wait here", ErrBehind, k.bytes)
	}
	notify(k.more)
}

// pop takes the sums of the next step to make; nil: there are none.
func (k *catching) pop() (sums []*device.Buffer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy = len(k.queue) > 0; !k.busy {
		return nil
	}
	sums, k.queue = k.queue[0], k.queue[1:]
	for _, b := range sums {
		k.bytes -= b.Len()
	}
	return sums
}

// state says whether the state is here, whether all steps are made that were kept, and what failed.
func (k *catching) state() (loaded, caught bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.loaded, k.loaded && !k.busy && len(k.queue) == 0, k.err
}

func (k *catching) breaks(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
	}
}

func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// startCatching begins to get the state before a step.
func (t *Team) startCatching(base uint64) {
	t.stopCatching()
	c, stop := context.WithCancel(context.Background())
	k := &catching{base: base, stop: stop, done: make(chan struct{}), more: make(chan struct{}, 1)}
	t.catching = k
	go func() {
		defer close(k.done)
		if err := t.catchUp(c, k, t.mail); err != nil {
			k.breaks(err)
		}
	}()
}

// catchUp gets the state, and makes the steps that are kept. Nobody else uses the model meanwhile.
func (t *Team) catchUp(c context.Context, k *catching, m *mail) error {
	if err := k.fetch(c, m); err != nil {
		return err
	}
	if err := t.takeOver(k.list, k.data); err != nil {
		return err
	}
	k.data = nil
	k.mu.Lock()
	k.loaded = true
	k.mu.Unlock()
	for step := k.base; ; {
		sums := k.pop()
		if sums == nil {
			select {
			case <-k.more:
				continue
			case <-c.Done():
				return c.Err()
			}
		}
		began := time.Now()
		err := t.make(step, sums)
		host.Release(sums...)
		step++
		if err != nil {
			return err
		}
		rest(c, time.Since(began))
	}
}

// rest has others of this host, and of the network, have their share.
func rest(c context.Context, d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	select {
	case <-end.C:
	case <-c.Done():
	}
}

func (t *Team) stopCatching() {
	k := t.catching
	if k == nil {
		return
	}
	k.stop()
	<-k.done
	for _, sums := range k.queue {
		host.Release(sums...)
	}
	t.catching = nil
}

// catchFrom says who has the state.
func (t *Team) catchFrom(names []string) {
	if k := t.catching; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.from = names
		notify(k.more)
	}
}

func (k *catching) sources() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.from
}

// caughtUp says whether this member has made all steps that the others have.
func (t *Team) caughtUp() bool {
	if t.catching == nil {
		return false
	}
	_, caught, err := t.catching.state()
	return caught && err == nil
}

// follow is a step of a member that has no state: it brings zeros, and keeps the sums.
func (t *Team) follow(c context.Context) error {
	if t.catching != nil {
		loaded, _, err := t.catching.state()
		if err != nil {
			return err
		}
		if loaded {
			t.m.Loaded()
		}
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

// resting is how much longer than for a piece of the state a newcomer waits before it asks for the
// next one, so that it takes a small part of what links and processors do.
const resting = 4

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
					rest(c, resting*time.Since(began))
					if err != nil { // another one has it
						mu.Lock()
						defer mu.Unlock()
						todo, last = append(todo, l), fmt.Errorf("%s: %w", name, err)
						return
					}
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
	data, err := m.question(c, from, l)
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
	var last error
	for c.Err() == nil {
		lists := map[string][]string{}
		for _, name := range k.sources() {
			raw, err := m.question(c, name, letter{Step: k.base, Entry: -1})
			var list manifest
			if err == nil {
				err = json.Unmarshal(raw, &list)
			}
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
		if len(lists) == 1 && k.plausible() {
			return nil
		}
		m.idle(c, pause)
	}
	return errors.Join(c.Err(), last)
}

// plausible says whether a list can be one of a state.
func (k *catching) plausible() bool {
	return !slices.ContainsFunc(k.list.Entries, func(e entry) bool {
		return e.Bytes < 0 || len(e.Name) < 2 || len(e.Sums) != e.pieces()
	})
}
