package resilient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/host"
)

// catching is a member that gets the state while it keeps the sums of all steps. A goroutine of its
// own gets the state, and then makes the steps that were kept.
type catching struct {
	base uint64 // the step before which the state is
	stop context.CancelFunc
	done chan struct{} // closed when the goroutine has ended
	list manifest
	like []*autodiff.Tensor // by entry of the list: the parameter whose type it has
	data []*device.Buffer   // by entry of the list; nil: not here, or in the model
	more chan struct{}      // of capacity 1: there are other sources, or sums

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
	if err := t.fetch(c, k, m); err != nil {
		return err
	}
	if err := t.takeOver(k.list, k.like, k.data); err != nil {
		return err
	}
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
		if k.steppedThere() { // what waits is made first, or it would never be there
			rest(c, resting*time.Since(began))
		}
	}
}

// steppedThere notes that a step is made, and says whether it was the last of those that are kept.
func (k *catching) steppedThere() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = false
	return len(k.queue) == 0
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
	for _, sums := range append(k.queue, k.data) {
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
		if !errors.Is(err, parallel.ErrFailed) && !t.mends(c, err) { // where a step came to nothing another one is tried
			return err
		}
	}
	return nil
}
