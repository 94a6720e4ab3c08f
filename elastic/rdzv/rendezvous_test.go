package rdzv

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// counted counts what goes to and from a store, as if it were over a network.
type counted struct {
	store.Store
	calls, bytes *atomic.Int64
}

func (s counted) count(n int) { s.calls.Add(1); s.bytes.Add(int64(n)) }

func (s counted) Set(c context.Context, k string, v []byte) error {
	s.count(len(k) + len(v))
	return s.Store.Set(c, k, v)
}

func (s counted) Get(c context.Context, k string) ([]byte, error) {
	v, err := s.Store.Get(c, k)
	s.count(len(k) + len(v))
	return v, err
}

func (s counted) CompareSet(c context.Context, k string, old, v []byte) ([]byte, error) {
	s.count(len(k) + len(old) + len(v))
	return s.Store.CompareSet(c, k, old, v)
}

func (s counted) Push(c context.Context, k string, v []byte) error {
	s.count(len(k) + len(v))
	return s.Store.Push(c, k, v)
}

func (s counted) Pop(c context.Context, k string) ([]byte, error) {
	v, err := s.Store.Pop(c, k)
	s.count(len(k) + len(v))
	return v, err
}

func (s counted) TryPop(c context.Context, k string) ([]byte, bool, error) {
	v, ok, err := s.Store.TryPop(c, k)
	s.count(len(k) + len(v))
	return v, ok, err
}

func (s counted) Watch(c context.Context, k string) (*store.Watch, error) {
	s.count(len(k))
	w, err := s.Store.Watch(c, k)
	if err != nil {
		return nil, err
	}
	out, send, end := store.NewWatch(c, w.Stop)
	go func() {
		for ch := range w.C {
			s.count(len(k) + len(ch.New))
			send(ch)
		}
		end(context.Canceled)
	}()
	return out, nil
}

// life is a node that runs.
type life struct {
	id     string
	r      *Rendezvous
	kill   context.CancelFunc
	place  Placement
	last   Action
	placed int
}

// take follows the news of a node until f says that it is enough.
func (l *life) take(t *testing.T, f func(Action) bool) {
	t.Helper()
	for {
		select {
		case a, open := <-l.r.News:
			require.True(t, open, "the news ended: %v", l.r.err)
			l.last = a
			if a.Kind == Place {
				l.place = a.Placement
				l.placed++
			}
			if f(a) {
				return
			}
		case <-time.After(time.Hour):
			require.Fail(t, "no news for an hour")
		}
	}
}

func isPlaced(a Action) bool { return a.Kind == Place }

func begin(t *testing.T, st store.Store, cfg Config, n int) *life {
	return beginTelling(t, st, cfg, n, nil)
}

func beginTelling(t *testing.T, st store.Store, cfg Config, n int, log *slog.Logger) *life {
	c, kill := context.WithCancel(context.Background())
	r, err := Open(c, st, cfg, Node{ID: fmt.Sprint("n", n), Addr: fmt.Sprint("h", n), Slots: 2}, log)
	require.NoError(t, err)
	return &life{id: fmt.Sprint("n", n), r: r, kill: kill}
}

// bubble runs a test in a time of its own, with a store.
func bubble(t *testing.T, f func(t *testing.T, st store.Store)) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		defer st.Close()
		f(t, st)
	})
}

func leave(t *testing.T, lives ...*life) {
	for _, l := range lives {
		require.NoError(t, l.r.Leave(context.Background(), "the test is over"))
	}
}

func TestNodesThatJoinAreOfOneRoundWithRanksOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		start := time.Now()
		var lives []*life
		for i := range 3 {
			lives = append(lives, begin(t, st, Config{Min: 3}, i))
		}
		ranks := map[int]bool{}
		for _, l := range lives {
			l.take(t, isPlaced)
			ranks[l.place.Rank] = true
			require.Equal(t, 3, l.place.Nodes)
			require.Equal(t, 6, l.place.World)
			require.Equal(t, 2*l.place.Rank, l.place.First)
			require.Equal(t, lives[0].place.MasterAddr, l.place.MasterAddr)
		}
		require.Len(t, ranks, 3)
		require.Less(t, time.Since(start), 2*time.Second)
		leave(t, lives...)
	})
}

func TestWhoComesDuringTheLastCallIsOfTheRoundAndWhoComesAfterItOfTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 1, Max: 3, LastCall: 10 * time.Second}
		a := begin(t, st, cfg, 0)
		time.Sleep(5 * time.Second)
		b := begin(t, st, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		require.Equal(t, 2, a.place.Nodes)
		c := begin(t, st, cfg, 2)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		c.take(t, isPlaced)
		require.Equal(t, []int{0, 1, 2}, []int{a.place.Rank, b.place.Rank, c.place.Rank})
		require.True(t, a.place.Stayed)
		require.False(t, c.place.Stayed)
		require.Equal(t, 0, c.place.Source)
		require.False(t, a.place.Restart, "who runs goes on")
		leave(t, a, b, c)
	})
}

func TestANodeThatDiesIsMissedAndTheOthersGoOnWithTheirRanks(t *testing.T) {
	for victim := range 3 { // the leader among them
		bubble(t, func(t *testing.T, st store.Store) {
			cfg := Config{Min: 2, Max: 3, Silence: 3 * time.Second}
			lives := []*life{begin(t, st, cfg, 0), begin(t, st, cfg, 1), begin(t, st, cfg, 2)}
			for _, l := range lives {
				l.take(t, isPlaced)
			}
			dead := lives[victim]
			died := time.Now()
			dead.kill()
			for i, l := range lives {
				if i == victim {
					continue
				}
				was := l.place.Rank
				l.take(t, isPlaced)
				require.Equal(t, 2, l.place.Nodes)
				if was < 2 {
					require.Equal(t, was, l.place.Rank)
				}
				require.Less(t, time.Since(died), 7*time.Second)
			}
			<-dead.r.done
			again := begin(t, st, cfg, 7)
			again.take(t, isPlaced)
			require.Equal(t, 3, again.place.Nodes)
			require.Equal(t, 2, again.place.Rank)
			for i, l := range lives {
				if i != victim {
					leave(t, l)
				}
			}
			leave(t, again)
		})
	}
}

func TestALeaveIsNotTheEndForTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 1, Max: 3, LastCall: time.Second}
		lives := []*life{begin(t, st, cfg, 0), begin(t, st, cfg, 1), begin(t, st, cfg, 2)}
		for _, l := range lives {
			l.take(t, isPlaced)
		}
		for n := 2; n > 0; n-- { // the leader goes first
			start := time.Now()
			leave(t, lives[0])
			lives = lives[1:]
			for _, l := range lives {
				l.take(t, isPlaced)
				require.Equal(t, n, l.place.Nodes)
			}
			require.Less(t, time.Since(start), time.Second, "nobody waits for a silence to pass")
		}
		leave(t, lives...)
	})
}

func TestTheRendezvousEndsWhenEveryNodeIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		lives := []*life{begin(t, st, Config{Min: 2}, 0), begin(t, st, Config{Min: 2}, 1)}
		for _, l := range lives {
			l.take(t, isPlaced)
		}
		lives[0].r.Done(0)
		time.Sleep(time.Minute) // its silence would be no news, but it is not silent
		lives[1].r.Done(0)
		for _, l := range lives {
			l.take(t, func(a Action) bool { return a.Kind == Finished })
			require.NoError(t, l.last.Err)
		}
		leave(t, lives...)
	})
}

func TestFailedWorkersAreReplacedUntilTheJobsBudgetIsSpentAndThenAllHearWhy(t *testing.T) {
	bubble(t, func(t *testing.T, st store.Store) {
		cfg := Config{Min: 2, MaxRestarts: 2}
		a, b := begin(t, st, cfg, 0), begin(t, st, cfg, 1)
		a.take(t, isPlaced)
		b.take(t, isPlaced)
		restart := func(x Action) bool { return x.Kind == Restart }
		a.r.Fail(0, 1, 1, 0, "exit code 3")
		a.take(t, restart)
		b.r.Fail(0, 2, 1, 0, "killed")
		b.take(t, restart)
		require.Equal(t, 2, b.last.Placement.Restarts)
		a.r.Fail(0, 1, 2, 0, "exit code 3")
		for _, l := range []*life{a, b} {
			l.take(t, func(x Action) bool { return x.Kind == Finished })
			require.ErrorIs(t, l.last.Err, ErrClosed)
			require.ErrorContains(t, l.last.Err, "worker 1 of n0 failed: exit code 3; all 2 restarts are spent")
			require.Equal(t, 1, l.placed, "nobody was restarted but who failed")
		}
		leave(t, a, b)
	})
}

func TestTheMessagesOfARoundGrowWithItsNodesAndNotFaster(t *testing.T) {
	cost := func(n int) (calls, bytes float64) {
		bubble(t, func(t *testing.T, st store.Store) {
			s := counted{st, new(atomic.Int64), new(atomic.Int64)}
			lives := make([]*life, n)
			for i := range lives {
				lives[i] = begin(t, s, Config{Min: n}, i)
			}
			for _, l := range lives {
				l.take(t, isPlaced)
			}
			calls, bytes = float64(s.calls.Load()), float64(s.bytes.Load())
			for _, l := range lives {
				l.kill()
				<-l.r.done
			}
		})
		return calls / float64(n), bytes / float64(n)
	}
	fewCalls, fewBytes := cost(50)
	calls, bytes := cost(400)
	t.Logf("per node: %.1f calls and %.0f bytes of 50, %.1f and %.0f of 400", fewCalls, fewBytes, calls, bytes)
	require.Less(t, calls, 1.5*fewCalls)
	require.Less(t, bytes, 1.5*fewBytes)
}
