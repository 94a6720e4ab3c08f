package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// ledger counts what became of changes that happen once or not at all. It is safe for concurrent
// use.
type ledger struct {
	mu                   sync.Mutex
	done, unsure, failed map[string]bool
}

func newLedger() *ledger {
	return &ledger{done: map[string]bool{}, unsure: map[string]bool{}, failed: map[string]bool{}}
}

func (l *ledger) note(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.done[name] = true
	case errors.Is(err, store.ErrUncertain):
		l.unsure[name] = true
	default:
		l.failed[name] = true
	}
}

// require compares it with what is found.
func (l *ledger) require(t *testing.T, found []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range found {
		require.False(t, seen[name], "%s happened twice", name)
		require.False(t, l.failed[name], "%s happened, but its error did not say that it may have", name)
		seen[name] = true
	}
	for name := range l.done {
		require.True(t, seen[name], "%s did not happen", name)
	}
	t.Logf("%d succeeded, %d failed, %d may have happened", len(l.done), len(l.failed), len(l.unsure))
}

// cancelledChanges cancels changes at any moment: those that say they failed have not happened,
// unless they say that this is uncertain.
func cancelledChanges(t *testing.T, clients []store.Store, unsupported map[Part]bool) {
	logs, queued, sums := newLedger(), newLedger(), newLedger()
	inParallel(t, clients, func(i int, s store.Store) error {
		r := rand.New(rand.NewPCG(uint64(i), 0))
		for n := range 30 {
			name := fmt.Sprintf("%d.%d", i, n)
			change := func(f func(c context.Context) error) error {
				c, cancel := context.WithCancel(context.Background())
				defer cancel()
				spins := r.IntN(250)
				if spins > 200 {
					cancel()
				}
				go func() {
					for range spins {
						runtime.Gosched()
					}
					cancel()
				}()
				err := f(c)
				if err != nil && !errors.Is(err, context.Canceled) {
					return fmt.Errorf("not cancelled, but: %w", err)
				}
				return err
			}
			sums.note(name, change(func(c context.Context) error { _, err := s.Add(c, "sum", 1); return err }))
			if !unsupported[Append] {
				logs.note(name, change(func(c context.Context) error { return s.Append(c, "log", []byte(name+" ")) }))
			}
			if !unsupported[Queues] {
				queued.note(name, change(func(c context.Context) error { return s.Push(c, "q", []byte(name)) }))
			}
		}
		return nil
	})
	s := clients[0]
	sum, err := s.Add(within(t), "sum", 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, sum, int64(len(sums.done)))
	require.LessOrEqual(t, sum, int64(len(sums.done)+len(sums.unsure)))
	if !unsupported[Append] {
		require.NoError(t, s.Append(within(t), "log", nil))
		v, err := s.Get(within(t), "log")
		require.NoError(t, err)
		logs.require(t, strings.Fields(string(v)))
	}
	if !unsupported[Queues] {
		var found []string
		for {
			v, ok, err := s.TryPop(within(t), "q")
			require.NoError(t, err)
			if !ok {
				break
			}
			found = append(found, string(v))
		}
		queued.require(t, found)
	}
}

// crowd has many calls of every client wait, most of which are cancelled: the others are served.
func crowd(t *testing.T, clients []store.Store) {
	c := within(t)
	impatient, cancel := context.WithCancel(c)
	const each = 50
	var left sync.WaitGroup
	left.Add(len(clients) * each * 3 / 5)
	inParallel(t, clients, func(i int, s store.Store) error {
		errs := make(chan error, each)
		for n := range each {
			key := "key" + strconv.Itoa(n%7)
			go func() {
				if n%5 < 3 {
					err := s.Wait(impatient, "never", key)
					left.Done()
					if errors.Is(err, context.Canceled) {
						err = nil
					}
					errs <- err
					return
				}
				v, err := s.Get(c, key)
				if err == nil && string(v) != key {
					err = fmt.Errorf("%s is %q", key, v)
				}
				errs <- err
			}()
		}
		if i == 0 {
			cancel()
			left.Wait()
			for n := range 7 {
				key := "key" + strconv.Itoa(n)
				if err := s.Set(c, key, []byte(key)); err != nil {
					return err
				}
			}
		}
		var err error
		for range each {
			err = errors.Join(err, <-errs)
		}
		return err
	})
}
