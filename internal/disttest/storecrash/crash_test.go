package storecrash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/journal"
)

const clients = 8

// arena is a server in another process, its clients, and what they have done.
type arena struct {
	t     *testing.T
	c     context.Context
	place place
	srv   *proctest.Proc
	crowd []*client

	done  chan struct{} // one for each change
	over  chan struct{} // closed when no more are wanted
	wg    sync.WaitGroup
	count int // compactions
}

func TestAKilledServerComesBackWithAllThatWasAcknowledgedAndOnce(t *testing.T) {
	leak.Check(t)
	c, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	a := &arena{t: t, c: c, place: place{Path: filepath.Join(t.TempDir(), "journal")},
		done: make(chan struct{}, 64), over: make(chan struct{})}
	a.start()
	r := rand.New(rand.NewPCG(6, 20))
	a.load()
	kills := min(20, soak.Cases(3))
	for life := range kills {
		a.place.Sync = []journal.Policy{journal.Always, journal.Never, journal.Policy(20 * time.Millisecond)}[life%3]
		a.run(500 + r.IntN(1500))
		waits := a.waiters(life)
		a.run(r.IntN(50))
		a.kill()
		a.start()
		a.release(life, waits)
	}
	a.run(200)
	close(a.over)
	a.wg.Wait()
	a.kill()
	a.start()
	a.verify(kills)
}

// start starts the server; the first one finds a port, and the others must have that one.
func (a *arena) start() {
	a.srv = proctest.Start(a.t, nil)
	require.NoError(a.t, a.srv.Ask(a.c, "serve", a.place, &a.place.Addr))
}

func (a *arena) kill() {
	var n int
	require.NoError(a.t, a.srv.Ask(a.c, "compactions", struct{}{}, &n))
	a.count += n
	a.srv.Kill()
}

// load has all clients change keys until it is over.
func (a *arena) load() {
	for i := range clients {
		cl, err := store.Dial(a.c, store.ClientConfig{Addr: a.place.Addr, Timeout: patience})
		require.NoError(a.t, err)
		a.t.Cleanup(func() { cl.Close() })
		w := &client{name: fmt.Sprint("c", i), cl: cl, r: rand.New(rand.NewPCG(7, uint64(i)))}
		require.NoError(a.t, w.begin(a.c))
		a.crowd = append(a.crowd, w)
	}
	for _, w := range a.crowd {
		a.wg.Go(func() {
			for {
				if err := w.step(a.c); err != nil {
					a.t.Errorf("%s: %v", w.name, err)
				}
				select {
				case a.done <- struct{}{}:
				case <-a.over:
					return
				}
			}
		})
	}
}

// run lets the clients do n changes.
func (a *arena) run(n int) {
	for range n {
		<-a.done
	}
}

// wait is one that is under way when the server is killed, and its result.
type wait chan error

// waiters starts waits and returns when the server has them all.
func (a *arena) waiters(life int) (waits []wait) {
	key := fmt.Sprint("life", life)
	for _, w := range a.crowd {
		waits = append(waits, async(func() error {
			v, err := w.cl.Get(a.c, key)
			if err == nil && string(v) != key {
				err = fmt.Errorf("%q is %q", key, v)
			}
			return err
		}))
	}
	for i := range 3 { // who waits has taken nothing, and that it has arrived is known
		w := a.crowd[(life+i)%clients].cl
		waits = append(waits, async(func() error {
			v, err := w.Pop(a.c, "jobs")
			if err == nil && string(v) != key {
				err = fmt.Errorf("the job is %q, expected %q", v, key)
			}
			return err
		}), async(func() error { return w.Barrier(a.c, "barrier of "+key, 4) }))
	}
	for n := 0; n < len(waits); {
		a.run(1)
		require.NoError(a.t, a.srv.Ask(a.c, "waiters", struct{}{}, &n))
	}
	return waits
}

func async(do func() error) wait {
	w := make(wait, 1)
	go func() { w <- do() }()
	return w
}

// release gives the waits what they wait for, which none of them may have got before.
func (a *arena) release(life int, waits []wait) {
	key := fmt.Sprint("life", life)
	for i, w := range waits {
		select {
		case err := <-w:
			a.t.Errorf("wait %d has ended before there was anything: %v", i, err)
		default:
		}
	}
	cl := a.crowd[0].cl
	require.NoError(a.t, cl.Set(a.c, key, []byte(key)))
	for range 3 {
		require.NoError(a.t, cl.Push(a.c, "jobs", []byte(key)))
	}
	require.NoError(a.t, cl.Barrier(a.c, "barrier of "+key, 4))
	for i, w := range waits {
		require.NoError(a.t, <-w, "wait %d", i)
	}
	left, err := cl.Len(a.c, "jobs")
	require.NoError(a.t, err)
	require.Zero(a.t, left)
	n, err := cl.Add(a.c, "barrier of "+key, 0)
	require.NoError(a.t, err)
	require.EqualValues(a.t, 4, n, "each arrived once")
}

// verify compares what the last server has with what the clients know.
func (a *arena) verify(kills int) {
	var sure, doubtful int64
	var resolved, written int
	for _, w := range a.crowd {
		require.NoError(a.t, w.check(a.c))
		sure, doubtful = sure+w.shared, doubtful+w.doubtful
		resolved += w.resolved
		written += len(w.log)
	}
	n, err := a.crowd[0].cl.Add(a.c, "shared", 0)
	require.NoError(a.t, err)
	require.GreaterOrEqual(a.t, n, sure)
	require.LessOrEqual(a.t, n, sure+doubtful)
	info, err := os.Stat(a.place.Path)
	require.NoError(a.t, err)
	a.t.Logf("%d kills: %d changes of the shared number are certain, %d not, and there are %d; %d other changes were uncertain and found out; "+
		"%d compactions, the journal has %d bytes", kills, sure, doubtful, n, resolved, a.count, info.Size())
}

// The system itself refuses a write of the journal, in the middle of a record: the server tells its
// clients, and takes nothing more.
func TestWhatAFullDiskDidNotTakeIsNotAcknowledged(t *testing.T) {
	leak.Check(t)
	c, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := &arena{t: t, c: c, place: place{Path: filepath.Join(t.TempDir(), "journal"), Room: 10_000}}
	a.start()
	cl, err := store.Dial(c, store.ClientConfig{Addr: a.place.Addr})
	require.NoError(t, err)
	defer cl.Close()
	acknowledged := int64(0)
	for {
		n, err := cl.Add(c, "n", 1)
		if err != nil {
			require.ErrorIs(t, err, store.ErrUncertain)
			break
		}
		acknowledged = n
	}
	require.Greater(t, acknowledged, int64(100))
	_, err = cl.Add(c, "n", 1)
	require.ErrorContains(t, err, "file too large", "the system's word")
	require.NotErrorIs(t, err, store.ErrUncertain)
	_, err = cl.Get(c, "n")
	require.ErrorContains(t, err, "file too large", "what is in memory only is not shown")
	a.kill()
	a.place.Room = 0
	a.start()
	n, err := cl.Add(c, "n", 0)
	require.NoError(t, err)
	require.Equal(t, acknowledged, n)
}
