package storetest

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func push(t *testing.T, s store.Store, key string, values ...string) {
	t.Helper()
	for _, v := range values {
		require.NoError(t, s.Push(within(t), key, []byte(v)))
	}
}

func requirePop(t *testing.T, s store.Store, key, want string) {
	t.Helper()
	v, err := s.Pop(within(t), key)
	require.NoError(t, err)
	require.Equal(t, want, string(v))
	require.NotNil(t, v)
}

func requireLen(t *testing.T, s store.Store, key string, want int64) {
	t.Helper()
	n, err := s.Len(within(t), key)
	require.NoError(t, err)
	require.Equal(t, want, n)
}

func requireEmpty(t *testing.T, s store.Store, key string) {
	t.Helper()
	v, ok, err := s.TryPop(within(t), key)
	require.NoError(t, err)
	require.False(t, ok)
	require.Empty(t, v)
	requireLen(t, s, key, 0)
}

func firstInFirstOut(t *testing.T, s store.Store) {
	requireEmpty(t, s, "q")
	want := []string{}
	for i := range 40 {
		want = append(want, strconv.Itoa(i))
		push(t, s, "q", want[len(want)-1])
		if i%3 == 2 {
			requirePop(t, s, "q", want[0])
			want = want[1:]
		}
		requireLen(t, s, "q", int64(len(want)))
	}
	push(t, s, "other", "x")
	for _, v := range want {
		got, ok, err := s.TryPop(within(t), "q")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, v, string(got))
	}
	requireEmpty(t, s, "q")
	requirePop(t, s, "other", "x")
	push(t, s, "q", "", "again")
	requirePop(t, s, "q", "")
	requirePop(t, s, "q", "again")
}

func queuesApart(t *testing.T, s store.Store) {
	before := count(t, s)
	push(t, s, "both", "queued")
	require.Equal(t, before, count(t, s))
	requireCheck(t, s, true, "both")
	require.NoError(t, s.Wait(within(t), "both"))
	_, err := s.Get(briefly(t), "both")
	require.ErrorIs(t, err, store.ErrTimeout)
	was, err := s.Delete(within(t), "both")
	require.NoError(t, err)
	require.False(t, was)
	set(t, s, "both", "value")
	require.Equal(t, before+1, count(t, s))
	requireLen(t, s, "both", 1)
	was, err = s.Delete(within(t), "both")
	require.NoError(t, err)
	require.True(t, was)
	requireCheck(t, s, true, "both")
	requirePop(t, s, "both", "queued")
	requireCheck(t, s, false, "both")
}

func popWaits(t *testing.T, s store.Store) {
	done := make(chan error, 2)
	go func() {
		v, err := s.Pop(within(t), "q")
		if err == nil && string(v) != "late" {
			err = fmt.Errorf("popped %q", v)
		}
		done <- err
	}()
	set(t, s, "q", "a value is not in the queue")
	push(t, s, "q", "late")
	require.NoError(t, <-done)
	requireEmpty(t, s, "q")
	go func() { done <- s.Wait(within(t), "w", "q") }()
	push(t, s, "w", "v")
	require.NoError(t, <-done)
	requirePop(t, s, "w", "v")
	_, err := s.Pop(briefly(t), "q")
	require.ErrorIs(t, err, store.ErrTimeout)
	require.Regexp(t, `wait timeout after \d+ms, keys: /.*q$`, err.Error())
	push(t, s, "q", "later") // who has gone takes nothing
	requirePop(t, s, "q", "later")
}

// cancelledPop cancels Pops at the moment of a Push: each value is popped or still there.
func cancelledPop(t *testing.T, s store.Store) {
	for i := range 60 {
		c, cancel := context.WithCancel(within(t))
		var wg sync.WaitGroup
		var got []byte
		var err error
		wg.Go(func() { got, err = s.Pop(c, "q") })
		if i%3 > 0 {
			wg.Go(cancel)
		}
		push(t, s, "q", strconv.Itoa(i))
		if i%3 == 0 {
			cancel()
		}
		wg.Wait()
		cancel()
		if err == nil {
			require.Equal(t, strconv.Itoa(i), string(got))
		} else {
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, store.ErrUncertain)
			got, ok, err := s.TryPop(within(t), "q")
			require.NoError(t, err)
			require.True(t, ok, "the cancelled Pop has taken it")
			require.Equal(t, strconv.Itoa(i), string(got))
		}
		requireEmpty(t, s, "q")
	}
}

func queueLimits(t *testing.T, s store.Store) {
	c, huge := within(t), make([]byte, 8<<20+1)
	require.ErrorIs(t, s.Push(c, "q", huge), store.ErrTooLarge)
	requireEmpty(t, s, "q")
	for _, key := range []string{"", strings.Repeat("k", 8<<10)} {
		_, popErr := s.Pop(c, key)
		_, _, tryErr := s.TryPop(c, key)
		_, lenErr := s.Len(c, key)
		for _, err := range []error{s.Push(c, key, nil), popErr, tryErr, lenErr} {
			require.ErrorIs(t, err, store.ErrBadKey)
		}
	}
	require.NoError(t, s.Push(c, "q", huge[1:]))
	v, err := s.Pop(c, "q")
	require.NoError(t, err)
	require.Len(t, v, len(huge)-1)
}

func queueOwnership(t *testing.T, s store.Store) {
	v := []byte("value")
	require.NoError(t, s.Push(within(t), "q", v))
	v[0] = 'X'
	requirePop(t, s, "q", "value")
}

// oneTakerEach has several clients push and several pop: every value is popped once, and those of
// one client in their order.
func oneTakerEach(t *testing.T, clients []store.Store) {
	c := within(t)
	const each = 30
	popped := make([][]string, len(clients))
	inParallel(t, clients, func(i int, s store.Store) error {
		for n := range each {
			if i%2 == 0 {
				if err := s.Push(c, "q", fmt.Appendf(nil, "%d %d", i, n)); err != nil {
					return err
				}
				continue
			}
			v, err := s.Pop(c, "q")
			if err != nil {
				return err
			}
			popped[i] = append(popped[i], string(v))
		}
		return nil
	})
	seen := map[string]bool{}
	for _, values := range popped {
		last := map[int]int{}
		for _, v := range values {
			var i, n int
			_, err := fmt.Sscanf(v, "%d %d", &i, &n)
			require.NoError(t, err)
			require.False(t, seen[v], "%s was popped twice", v)
			require.GreaterOrEqual(t, n, last[i], "in order")
			seen[v], last[i] = true, n
		}
	}
	require.Len(t, seen, each*len(clients)/2)
	requireEmpty(t, clients[0], "q")
}

// pushServesOne has all clients but one wait for what that one pushes, one value after the other.
func pushServesOne(t *testing.T, clients []store.Store) {
	c := within(t)
	got := make(chan string, len(clients))
	var wg sync.WaitGroup
	for _, s := range clients[1:] {
		wg.Go(func() {
			v, err := s.Pop(c, "q")
			if err != nil {
				v = []byte(err.Error())
			}
			got <- string(v)
		})
	}
	for i := range clients[1:] {
		push(t, clients[0], "q", strconv.Itoa(i))
		require.Equal(t, strconv.Itoa(i), <-got)
	}
	wg.Wait()
	requireEmpty(t, clients[0], "q")
}

// popsThatGiveUp has some give up a Pop at the moment of a Push, and one wait that does not: that
// one gets the value which nobody took, whosever turn it was.
func popsThatGiveUp(t *testing.T, clients []store.Store) {
	c := within(t)
	for round := range 60 {
		impatient, cancel := context.WithCancel(c)
		gone, stayed := make(chan error, 3), make(chan error, 1)
		for i := range cap(gone) {
			go func() { _, err := clients[i%len(clients)].Pop(impatient, "q"); gone <- err }()
		}
		yield(20 * (round % 5))
		go func() { _, err := clients[round%len(clients)].Pop(c, "q"); stayed <- err }()
		yield(20 * (round % 7))
		pushed := make(chan error, 1)
		go func() { pushed <- clients[(round+1)%len(clients)].Push(c, "q", nil) }()
		yield(10 * (round % 11))
		cancel()
		require.NoError(t, <-pushed)
		taken := false
		for range cap(gone) {
			if err := <-gone; err == nil {
				taken = true
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, store.ErrUncertain)
			}
		}
		if taken {
			push(t, clients[0], "q", "another")
		}
		require.NoError(t, <-stayed)
	}
	requireEmpty(t, clients[0], "q")
}

// yield lets others run.
func yield(times int) {
	for range times {
		runtime.Gosched()
	}
}

// queueCalls is for everything.
func queueCalls(c context.Context, s store.Store) []error {
	_, lenErr := s.Len(c, "q")
	pushErr := s.Push(c, "q", nil)
	_, popErr := s.Pop(c, "q")
	_, _, tryErr := s.TryPop(c, "q")
	return []error{lenErr, pushErr, popErr, tryErr}
}
