package rdzv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-project/weft/store"
)

// feed brings what comes from the store, each kind by a goroutine of its own.
type feed struct {
	c    context.Context
	end  context.CancelFunc
	st   store.Store
	away *away
	cfg  Config
	runs sync.WaitGroup
	// broken gets what trying again does not mend.
	broken chan error
}

func newFeed(c context.Context, st store.Store, away *away, cfg Config) *feed {
	f := &feed{st: st, away: away, cfg: cfg, broken: make(chan error, 3)}
	f.c, f.end = context.WithCancel(c)
	return f
}

// stop ends everything and waits for it.
func (f *feed) stop() {
	f.end()
	f.runs.Wait()
}

// send says whether somebody took b.
func (f *feed) send(c context.Context, out chan<- []byte, b []byte) bool {
	select {
	case out <- b:
		return true
	case <-c.Done():
		return false
	}
}

// watch brings the value of a key, and every later one.
func (f *feed) watch(key string) <-chan []byte {
	out := make(chan []byte)
	f.runs.Go(func() {
		for f.c.Err() == nil {
			f.attend(f.c, key, func(c context.Context) error {
				w, err := f.st.Watch(c, key)
				if err != nil {
					return err
				}
				defer w.Stop()
				now, err := read(c, f.st, key)
				if err != nil {
					return err
				}
				if now != nil && !f.send(c, out, now) {
					return nil
				}
				for ch := range w.C {
					if ch.New != nil && !f.send(c, out, ch.New) {
						return nil
					}
				}
				return w.Err()
			})
		}
	})
	return out
}

// pop brings what comes into a queue; where a gate is given, while it was last told true.
func (f *feed) pop(queue string, gate <-chan bool) <-chan []byte {
	out := make(chan []byte)
	f.runs.Go(func() {
		open := gate == nil
		for f.c.Err() == nil {
			if !open {
				select {
				case open = <-gate:
				case <-f.c.Done():
				}
				continue
			}
			open = f.popWhile(queue, gate, out)
		}
	})
	return out
}

// popWhile pops until the gate is told false, and returns what it was told.
func (f *feed) popWhile(queue string, gate <-chan bool, out chan<- []byte) bool {
	c, closed := context.WithCancel(f.c)
	defer closed()
	var runs sync.WaitGroup
	defer runs.Wait()
	runs.Go(func() {
		for c.Err() == nil {
			f.attend(c, queue, func(c context.Context) error {
				b, err := f.st.Pop(c, queue)
				if err == nil && !f.send(f.c, out, b) && gate != nil {
					err = f.giveBack(queue, b)
				}
				return err
			})
		}
	})
	select {
	case open := <-gate:
		closed()
		return open
	case <-f.c.Done():
		closed()
		return false
	}
}

// giveBack puts back what was taken when it was too late to do anything about it.
func (f *feed) giveBack(queue string, b []byte) error {
	c, cancel := context.WithTimeout(context.WithoutCancel(f.c), time.Second)
	defer cancel()
	return f.st.Push(c, queue, b)
}

// attend is attend with its error told, after which there is nothing more to bring.
func (f *feed) attend(c context.Context, what string, do func(context.Context) error) {
	err := attend(c, f.away, f.cfg, what, func(c context.Context) error { _, err := f.st.Check(c, what); return err }, do)
	if err == nil || c.Err() != nil {
		return
	}
	f.broken <- err
	<-c.Done()
}

// WithoutStore is how long a node goes on while its rendezvous' store cannot be reached: four times
// what makes a node lost, and a minute at least.
func (cfg Config) WithoutStore() time.Duration { return max(4*cfg.Silence, time.Minute) }

// promptly bounds what waits for nobody: a client of the store has more patience than a rendezvous.
func (cfg Config) promptly(c context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c, max(cfg.Silence/3, time.Second))
}

// insist does what the store answers at once, again and again while it cannot be reached, and says
// so: an answer that is late says that it cannot. An error that trying again cannot mend, c's end,
// and the end of the time without a store, which is ErrNoStore, end it.
func insist(c context.Context, away *away, cfg Config, what string, do func(context.Context) error) error {
	return again(c, away, cfg, what, func(bool) (done, prompt bool, err error) {
		within, cancel := cfg.promptly(c)
		defer cancel()
		err = do(within)
		return err == nil, true, err
	})
}

// attend is insist for what waits for others, of which being late says nothing. While the store is
// away there is a probe instead, which is prompt: it tells that the store is back, however long the
// wait.
func attend(c context.Context, away *away, cfg Config, what string, probe, do func(context.Context) error) error {
	return again(c, away, cfg, what, func(lost bool) (done, prompt bool, err error) {
		if !lost {
			err = do(c)
			return err == nil, false, err
		}
		within, cancel := cfg.promptly(c)
		defer cancel()
		return false, true, probe(within)
	})
}

// again tries until it is done. A try is told whether the store is away, and says whether it was to
// be prompt.
func again(c context.Context, away *away, cfg Config, what string, try func(lost bool) (done, prompt bool, err error)) error {
	var since time.Time
	back := false
	over := func() {
		if !since.IsZero() {
			away.resolve(back)
			since = time.Time{}
		}
	}
	defer over()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		done, prompt, err := try(!since.IsZero())
		if back = err == nil; done {
			return nil
		}
		if back {
			over()
			continue
		}
		late := errors.Is(err, store.ErrTimeout)
		gone := errors.Is(err, store.ErrUnreachable) || errors.Is(err, store.ErrUncertain) || late && prompt
		if c.Err() != nil || !gone && !late {
			return err
		}
		if gone && since.IsZero() {
			since = time.Now()
			away.begin(cfg.WithoutStore(), what, err)
		}
		if !since.IsZero() && time.Since(since) >= cfg.WithoutStore() {
			return fmt.Errorf("%w for %v: %w", ErrNoStore, cfg.WithoutStore(), err)
		}
		select {
		case <-c.Done():
			return context.Cause(c)
		case <-time.After(wait):
		}
	}
}
