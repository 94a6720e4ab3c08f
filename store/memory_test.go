package store

import (
	"cmp"
	"context"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/state"
)

func TestAFullStoreRefusesWhatGrowsAndKeepsWhatItHas(t *testing.T) {
	c, m := context.Background(), &Memory{Limits: Limits{Memory: 1000}}
	n := 0
	for ; m.Set(c, strconv.Itoa(n), make([]byte, 100)) == nil; n++ {
		require.Less(t, n, 10)
	}
	require.Equal(t, 1000/(1+100+64), n)
	long := make([]byte, 300)
	_, casErr := m.CompareSet(c, "0", make([]byte, 100), long)
	_, addErr := m.Add(c, "sum of all that was counted, which needs a long name", 1)
	watch, watchErr := m.Watch(c, string(long))
	for name, err := range map[string]error{
		"set": m.Set(c, "0", long), "compareSet": casErr, "add": addErr, "append": m.Append(c, "0", long),
		"multiSet": m.MultiSet(c, Pair{Key: "0", Value: nil}, Pair{Key: "1", Value: long}, Pair{Key: "2", Value: long}), "push": m.Push(c, "q", long), "watch": watchErr,
		"wait": m.Wait(c, string(long)), "barrier": m.Barrier(c, string(long), 2),
	} {
		require.ErrorIs(t, err, ErrFull, name)
		require.NotErrorIs(t, err, ErrUncertain, name)
	}
	require.Nil(t, watch)
	require.Equal(t, state.Stats{Keys: n, Bytes: n * 165}, m.state.Stats(), "nothing has changed")
	require.NoError(t, m.MultiSet(c, Pair{Key: "0", Value: nil}, Pair{Key: "1", Value: long}, Pair{Key: "1", Value: make([]byte, 150)}), "what fits in the end fits")
	require.NoError(t, m.Set(c, "1", nil))
	require.NoError(t, m.Push(c, "q", nil))
}

func TestACallThatEndsLeavesNothingInTheCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, call := range []func(){
			func() { m.Get(c, "k") }, func() { m.Wait(c, "a", "b") }, func() { m.MultiGet(c, "a", "b") }, func() { m.Pop(c, "q") },
			func() { m.Barrier(c, "b", 2) },
		} {
			go call()
		}
		w, err := m.Watch(c, "k")
		require.NoError(t, err)
		synctest.Wait()
		m.mu.Lock()
		during := m.state.Stats()
		m.mu.Unlock()
		require.Equal(t, 5, during.Waiters)
		require.Equal(t, 1, during.Watchers)
		<-w.C
		synctest.Wait()
		require.ErrorIs(t, w.Err(), context.DeadlineExceeded)
		require.Equal(t, state.Stats{Keys: 1, Bytes: 66}, m.state.Stats(), "the barrier's count stays")
		require.Empty(t, m.waiting)
		require.Empty(t, m.watches)
	})
}

func TestAWatchOfAStoreHasNoTimeoutOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{Timeout: time.Second}
		w, err := m.Watch(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, m.Set(t.Context(), "k", []byte("late")))
		require.Equal(t, "late", string((<-w.C).New))
		require.NoError(t, m.Close())
		<-w.C
		require.ErrorIs(t, w.Err(), ErrClosed)
	})
}

func TestAValueThatComesAtTheMomentOfACancellationIsNotLost(t *testing.T) {
	m := NewMemory()
	for range 50 {
		c, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := m.Pop(c, "q"); done <- err }()
		for waiting := 0; waiting == 0; runtime.Gosched() {
			m.mu.Lock()
			waiting = len(m.waiting)
			m.mu.Unlock()
		}
		m.mu.Lock()
		cancel()
		m.applyLocked(state.Command{Op: state.OpPush, Key: "q"}) // handed to the Pop, which may have seen the cancellation first
		m.mu.Unlock()
		require.NoError(t, <-done)
	}
}

func TestAMemoryStoreTimesOutExactlyAndForgetsTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, m := range []*Memory{NewMemory(), {Timeout: time.Minute}} {
			want := cmp.Or(m.Timeout, DefaultTimeout)
			start := time.Now()
			_, err := m.Get(t.Context(), "k")
			require.ErrorIs(t, err, ErrTimeout)
			require.Equal(t, want, time.Since(start))
			require.ErrorContains(t, err, "wait timeout after "+strconv.Itoa(int(want.Milliseconds()))+"ms, keys: /k")
			require.Zero(t, m.state.Stats().Waiters)
			require.Empty(t, m.waiting)
		}
	})
}

func TestAViewThatIsClosedEndsItsWaitersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		p, q := NewPrefix("p", m), NewPrefix("p", m)
		done := make(chan error)
		go func() { done <- p.Wait(t.Context(), "k") }()
		other := make(chan error)
		go func() { other <- q.Wait(t.Context(), "k") }()
		synctest.Wait()
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-done, ErrClosed)
		require.NoError(t, m.Set(t.Context(), "p/k", nil))
		require.NoError(t, <-other)
		require.Same(t, m, q.Underlying())
	})
}

func TestAWaiterIsWokenAndAnotherGoesOnWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		done := make(chan string)
		for _, k := range []string{"a", "b"} {
			go func() {
				v, err := m.Get(t.Context(), k)
				require.NoError(t, err)
				done <- string(v)
			}()
		}
		synctest.Wait()
		require.NoError(t, m.Set(t.Context(), "b", []byte("second")))
		require.Equal(t, "second", <-done)
		require.NoError(t, m.Set(t.Context(), "a", []byte("first")))
		require.Equal(t, "first", <-done)
	})
}
