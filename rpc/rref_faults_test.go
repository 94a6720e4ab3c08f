package rpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// faults loses messages that it recognizes.
type faults struct {
	mu    sync.Mutex
	times int // how often each operation fails, for each pair of workers
	seen  map[string]int
	all   bool // from now on every control message is lost
	call  int  // how many calls are lost
}

func (f *faults) drop(from, to string, m *transport.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m.Kind {
	case wire.KindCall:
		f.call--
		return f.call >= 0
	case wire.KindRefs:
		var h wire.RefsHeader
		if f.all || wire.Decode(m.Header, &h) != nil {
			return f.all
		}
		for _, msg := range h.Messages {
			key := fmt.Sprint(from, to, msg.Op)
			if f.seen == nil {
				f.seen = map[string]int{}
			}
			if f.seen[key]++; f.seen[key] <= f.times {
				return true
			}
		}
	}
	return false
}

// nothing waits until no worker keeps anything for references.
func nothing(t *testing.T, ws []*Worker) {
	t.Helper()
	for _, w := range ws {
		eventually(t, w.Name()+" keeps nothing", func() bool {
			w.refs.mu.Lock()
			defer w.refs.mu.Unlock()
			return w.refs.m.Stats() == refs.Stats{} && len(w.refs.values)+len(w.refs.waiting) == 0
		})
	}
}

// keeper gives a worker's reference away without losing sight of it: what a function returns is
// left to the collector otherwise.
func keeper(b *box) *Func[RRef[int], RRef[int]] {
	return Define("keep", func(_ context.Context, r RRef[int]) (RRef[int], error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.r = r
		return r, nil
	})
}

func (b *box) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.r.Release()
}

func TestReferencesSurviveControlMessagesThatFailThreeTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{times: 3}
		b := &box{}
		keep := keeper(b)
		ws, _ := simWith(t, 4, simnet.Config{MinDelay: time.Millisecond, Drop: f.drop}, func(_ int, cfg *Config) {
			cfg.Functions, cfg.Timeout = []Function{constant, readRef, keep}, NoTimeout
		})
		c := ws[0].Context(t.Context())
		for _, owner := range []string{"worker0", "worker1", "worker2"} {
			r := constant.Remote(c, owner, 7)
			for _, to := range []string{"worker0", "worker1", "worker2", "worker3"} {
				n, err := readRef.Call(c, to, r)
				require.NoError(t, err)
				require.Equal(t, 7, n)
				again, err := keep.Call(c, to, r)
				require.NoError(t, err)
				require.True(t, again.Confirmed())
				b.release()
				again.Release()
			}
			r.Release()
		}
		time.Sleep(time.Minute)
		nothing(t, ws)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Greater(t, len(f.seen), 10, "%v", f.seen)
	})
}

func TestReferencesAreCountedWhereAnswersTakeLongerThanATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		ws, _ := simWith(t, 3, simnet.Config{Seed: 5, Delay: func(_, _ string, r *rand.Rand) time.Duration {
			if slow.Load() {
				return time.Duration(r.Int64N(int64(2 * tryTimeout)))
			}
			return 0
		}}, func(_ int, cfg *Config) { cfg.Functions, cfg.Timeout = []Function{constant, readRef}, NoTimeout })
		for _, w := range ws { // the link to oneself is made with the first call
			_, err := constant.Call(w.Context(t.Context()), w.Name(), 1)
			require.NoError(t, err)
		}
		slow.Store(true)
		var wg sync.WaitGroup
		for g := range 3 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(4, uint64(g)))
				c := ws[g].Context(t.Context())
				for i := range 5 {
					ref := constant.Remote(c, fmt.Sprintf("worker%d", r.IntN(3)), i)
					n, err := readRef.Call(c, fmt.Sprintf("worker%d", r.IntN(3)), ref)
					ref.Release()
					if err != nil || n != i {
						t.Errorf("read %d: %d, %v", i, n, err)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Minute)
		nothing(t, ws)
	})
}

func TestADroppedRemoteCallIsReportedByWhoeverUsesItsReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{call: 2}
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond, Drop: f.drop}, refFunctions)
		for _, to := range []string{"worker0", "worker1"} {
			c := ws[0].Context(t.Context())
			soon, cancel := context.WithTimeout(c, time.Second)
			r := constant.Remote(soon, to, 1)
			require.False(t, r.Confirmed())
			_, here := r.ToHere(c)
			_, local := r.LocalValue(c)
			_, argument := readRef.Call(c, "worker1", r)
			for _, err := range []error{here, local, argument, r.Ready(c)} {
				require.ErrorIs(t, err, ErrTimeout)
				require.ErrorContains(t, err, "creation of the value may have failed: worker0: constant on "+to)
			}
			cancel()
			require.False(t, r.Confirmed())
			r.Release()
			time.Sleep(time.Minute)
			nothing(t, ws)
		}
	})
}

func TestACallWhoseMessageIsLostEndsAtItsDeadlineAndTheNextOneWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{call: 2}
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond, Drop: f.drop}, refFunctions)
		c := ws[0].Context(t.Context())
		for _, to := range []string{"worker0", "worker1"} {
			start := time.Now()
			_, err := constant.Call(WithTimeout(c, time.Second), to, 1)
			require.ErrorIs(t, err, ErrTimeout)
			require.Equal(t, time.Second, time.Since(start))
		}
		for _, to := range []string{"worker0", "worker1"} {
			n, err := constant.Call(c, to, 2)
			require.NoError(t, err)
			require.Equal(t, 2, n)
		}
	})
}

func TestARemoteThatTimedOutIsFreedAtItsOwnerWhenTheCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := Define("deaf", func(_ context.Context, d time.Duration) (int, error) { time.Sleep(d); return 1, nil })
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, serve(deaf))
		for _, to := range []string{"worker0", "worker1"} {
			c, cancel := context.WithTimeout(ws[0].Context(t.Context()), time.Second)
			r := deaf.Remote(c, to, 10*time.Second)
			require.ErrorIs(t, r.Ready(t.Context()), ErrTimeout)
			time.Sleep(5 * time.Second)
			require.Equal(t, 1, ws[0].Owned()+ws[1].Owned(), "the call is under way")
			time.Sleep(5 * time.Second)
			r.Release()
			nothing(t, ws)
			cancel()
		}
	})
}

func TestToHereThatTimesOutSucceedsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: 20 * time.Millisecond}, refFunctions)
		c := ws[0].Context(t.Context())
		r := constant.Remote(c, "worker1", 3)
		require.NoError(t, r.Ready(c))
		soon, cancel := context.WithTimeout(c, 10*time.Millisecond)
		defer cancel()
		_, err := r.ToHere(soon)
		require.ErrorIs(t, err, ErrTimeout)
		n, err := r.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		r.Release()
		time.Sleep(time.Second)
		nothing(t, ws)
	})
}

// The answer carries a reference; the caller gives up while it is on the way, and the callee learns
// of it.
func TestTheReferencesOfAnAnswerThatNobodyTookAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := &faults{times: 2}, &box{}
		give := Define("give", func(c context.Context, n int) (RRef[int], error) {
			r, err := NewRRef(c, n)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.r = r
			return r, err
		})
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Second, Drop: f.drop}, serve(give))
		c, cancel := context.WithTimeout(ws[0].Context(t.Context()), 1500*time.Millisecond)
		defer cancel()
		_, err := give.Call(c, "worker1", 1)
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 2, ws[1].References().Forks)
		b.release()
		require.Equal(t, 1, ws[1].Owned(), "the answer's share counts until it is known that nobody took it")
		time.Sleep(time.Minute)
		nothing(t, ws)
	})
}

func TestAParentThatIsLostBeforeItsChildIsConfirmedLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{}
		ran := make(chan struct{}, 1)
		note := Define("note", func(_ context.Context, r RRef[int]) (int, error) { ran <- struct{}{}; r.Release(); return 0, nil })
		ws, net := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond, Drop: f.drop}, serve(constant, note))
		c := ws[1].Context(t.Context())
		r := constant.Remote(c, "worker0", 1)
		require.NoError(t, r.Ready(c))
		f.mu.Lock()
		f.all = true
		f.mu.Unlock()
		future := note.Async(c, "worker2", r)
		time.Sleep(time.Second)
		require.Equal(t, 1, ws[2].References().PendingUsers)
		require.Equal(t, 1, ws[1].References().PendingChildren)
		require.Equal(t, References{Owners: 1, Forks: 1}, ws[0].References())
		net.Kill("host1")
		_, err := future.Wait(c)
		require.Error(t, err)
		r.Release()
		time.Sleep(10 * time.Second)
		require.Zero(t, ws[0].Owned(), "a lost worker holds nothing")
		f.mu.Lock()
		f.all = false
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		nothing(t, []*Worker{ws[0], ws[2]})
		require.Empty(t, ran, "the argument was never confirmed")
	})
}

func TestALostOwnerFailsAReferenceThatWaitsForItsConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{}
		ws, net := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond, Drop: f.drop}, refFunctions)
		c := ws[1].Context(t.Context())
		r := constant.Remote(c, "worker0", 1)
		require.NoError(t, r.Ready(c))
		f.mu.Lock()
		f.all = true
		f.mu.Unlock()
		future := readRef.Async(c, "worker2", r)
		time.Sleep(time.Second)
		net.Kill("host0")
		_, err := future.Wait(c)
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorContains(t, err, "asking worker0 for a share")
		_, err = r.ToHere(c)
		require.ErrorIs(t, err, ErrPeerLost)
		f.mu.Lock()
		f.all = false
		f.mu.Unlock()
		r.Release()
		time.Sleep(10 * time.Second)
		nothing(t, ws[1:])
	})
}

func TestLeavingGivesBackWhatWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, refFunctions)
		held := make([]RRef[int], len(ws))
		errs := make([]error, len(ws))
		var wg sync.WaitGroup
		for i, w := range ws {
			wg.Go(func() {
				held[i] = constant.Remote(w.Context(t.Context()), fmt.Sprintf("worker%d", (i+1)%3), i)
				errs[i] = w.Leave(t.Context())
			})
		}
		wg.Wait()
		for i, w := range ws {
			require.NoError(t, errs[i])
			_, err := held[i].ToHere(w.Context(t.Context()))
			require.ErrorIs(t, err, ErrLeft)
			_, err = readRef.Call(w.Context(t.Context()), w.Name(), held[i])
			require.ErrorIs(t, err, ErrLeft)
			held[i].Release()
		}
	})
}

func TestLeavingReportsTheReferencesThatOthersKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		b := &box{}
		keep := keeper(b)
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, func(_ int, cfg *Config) {
			cfg.Functions, cfg.Logger = []Function{keep, constant}, logs.logger()
		})
		c := ws[0].Context(t.Context())
		mine, err := NewRRef(c, 1)
		require.NoError(t, err)
		back, err := keep.Call(c, "worker1", mine)
		require.NoError(t, err)
		back.Release()
		theirs := constant.Remote(c, "worker1", 2)
		require.NoError(t, theirs.Ready(c))
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = ws[0].Leave(soon)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, ErrLeaked)
		var leak *LeakError
		require.ErrorAs(t, err, &leak)
		require.Equal(t, &LeakError{
			Worker: "worker0",
			Theirs: []Leak{{mine.String(), "int", "worker1"}},
			Mine:   []Leak{{theirs.String(), "", "worker0"}},
		}, leak)
		require.Equal(t, 1, logs.count("references were not given back"))
		mine.Release()
		theirs.Release()
		b.release()
	})
}
