package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
)

func numbered(i int) Change { return Change{Key: "k", New: []byte(strconv.Itoa(i))} }

func numberOf(t *testing.T, ch Change) int {
	i, err := strconv.Atoi(string(ch.New))
	require.NoError(t, err)
	return i
}

func TestAWatchEndsAfterWhatIsQueued(t *testing.T) {
	leak.Check(t)
	released := 0
	w, send, end := NewWatch(context.Background(), func() { released++ })
	why, later := errors.New("the connection is lost"), errors.New("later")
	for i := range 3 {
		send(numbered(i))
	}
	end(why)
	end(later)
	send(numbered(3)) // too late
	for i := range 3 {
		require.NoError(t, w.Err())
		require.Equal(t, numbered(i), <-w.C)
	}
	_, open := <-w.C
	require.False(t, open)
	require.Equal(t, why, w.Err())
	w.Stop()
	require.Equal(t, why, w.Err())
	require.Equal(t, 1, released)
}

func TestAStoppedWatchLeavesNothingBehind(t *testing.T) {
	leak.Check(t)
	var released sync.WaitGroup
	released.Add(1)
	w, send, end := NewWatch(context.Background(), released.Done)
	for i := range 10 {
		send(numbered(i)) // nobody reads
	}
	var stops sync.WaitGroup
	for range 4 {
		stops.Go(w.Stop)
	}
	stops.Wait()
	released.Wait()
	_, open := <-w.C
	require.False(t, open)
	require.ErrorIs(t, w.Err(), context.Canceled)
	send(numbered(10))
	end(ErrClosed)
	require.Empty(t, w.queue)
	require.ErrorIs(t, w.Err(), context.Canceled)
}

func TestAWatchEndsWithItsContextAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("seen enough")
		c, cancel := context.WithCancelCause(t.Context())
		w, send, _ := NewWatch(c, func() {})
		send(numbered(0))
		synctest.Wait() // it offers that
		cancel(why)
		synctest.Wait()
		_, open := <-w.C
		require.False(t, open)
		require.Equal(t, why, w.Err())

		c, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		w, _, _ = NewWatch(c, func() {})
		<-w.C
		require.ErrorIs(t, w.Err(), context.DeadlineExceeded)
	})
}

func TestASlowReaderGetsTheNewestAndLearnsHowManyAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, send, _ := NewWatch(t.Context(), func() {})
		defer w.Stop()
		send(numbered(0))
		synctest.Wait() // the first is under way and cannot be dropped any more
		const n = 3000
		for i := 1; i < n; i++ {
			send(numbered(i))
		}
		require.Equal(t, numbered(0), <-w.C)
		want := numbered(n - watchMost)
		want.Dropped = n - watchMost - 1
		require.Equal(t, want, <-w.C)
		for i := n - watchMost + 1; i < n; i++ {
			require.Equal(t, numbered(i), <-w.C)
		}
	})
}

func TestWhatASlowReaderCostsIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, send, _ := NewWatch(t.Context(), func() {})
		defer w.Stop()
		send(numbered(0))
		synctest.Wait()
		part := make([]byte, watchBytes/4)
		for range 10 {
			send(Change{Old: part[:len(part)/2], New: part[:len(part)/2]})
		}
		require.Len(t, w.queue, 4)
		send(Change{New: make([]byte, watchBytes+1)}) // the latest stays, whatever its size
		require.Len(t, w.queue, 1)
		<-w.C
		ch := <-w.C
		require.Len(t, ch.New, watchBytes+1)
		require.Equal(t, 10, ch.Dropped)
		require.Zero(t, w.bytes)
	})
}

func TestAnUnknownNumberOfMissingChangesStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, send, _ := NewWatch(t.Context(), func() {})
		defer w.Stop()
		send(numbered(0))
		synctest.Wait()
		send(Change{Dropped: -1})
		for i := range watchMost + 5 {
			send(numbered(i))
		}
		require.Zero(t, (<-w.C).Dropped)
		require.Equal(t, -1, (<-w.C).Dropped)
		require.Zero(t, (<-w.C).Dropped)
		require.Equal(t, -1, addDropped(3, -1))
		require.Equal(t, 5, addDropped(3, 2))
	})
}

// A reader that is now slow, now quick: what comes is in order, and Dropped is exactly what is
// missing.
func TestAReaderOfAnySpeedCanCountEveryChange(t *testing.T) {
	for seed := range uint64(soak.Cases(6)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			w, send, end := NewWatch(t.Context(), func() {})
			sent := 0
			go func() {
				for range 20 {
					for range r.IntN(2 * watchMost) {
						send(numbered(sent))
						sent++
					}
					time.Sleep(time.Second)
				}
				end(ErrClosed)
			}()
			last := -1
			for ch := range w.C {
				i := numberOf(t, ch)
				require.Equal(t, last+1+ch.Dropped, i)
				if last = i; i%7 == 0 {
					time.Sleep(10 * time.Millisecond)
				}
			}
			require.Equal(t, sent-1, last, "the latest is never dropped")
			require.ErrorIs(t, w.Err(), ErrClosed)
		})
	}
}

func TestAWatchTakesChangesFromManyAtOnce(t *testing.T) {
	leak.Check(t)
	w, send, end := NewWatch(context.Background(), func() {})
	const senders, each = 8, 500
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for i := range each {
				send(numbered(i))
			}
		})
	}
	go func() { wg.Wait(); end(ErrClosed) }()
	got := 0
	for ch := range w.C {
		got += 1 + ch.Dropped
	}
	require.Equal(t, senders*each, got)
}

func TestTheKindsOfChangeHaveNames(t *testing.T) {
	for kind, want := range map[ChangeKind]string{Updated: "updated", Created: "created", Deleted: "deleted", 9: "unknown"} {
		require.Equal(t, want, kind.String())
	}
}
