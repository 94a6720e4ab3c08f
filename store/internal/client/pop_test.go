package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// popSchedule is when a value comes and when who waits for it gives up, as steps of the latter with
// its connection. A step that is not taken is the moment when it has been waiting for a while.
type popSchedule struct {
	push, cancel int
	anew         bool   // with a new connection
	stays        string // when another comes who does not give up
}

const (
	nobodyStays = "nobody else"
	staysBefore = "another waits already"
	staysThen   = "another comes with the value"
)

// Every order of a push, a Pop that is cancelled and one that is not, as far as the client's steps
// tell them apart: the value goes to one of both, or stays.
func TestNoValueIsLostAtWhicheverStepsAPopIsCancelledAndTheValueComes(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"weft", "2.15"} {
		for _, stays := range []string{nobodyStays, staysBefore, staysThen} {
			t.Run(release+"/"+stays, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake(t, release)
					cl, s := stepwise(t, f)
					other := f.client(Config{})
					last := 2
					for push := 1; push <= last+1; push++ {
						for cancel := 1; cancel <= last+1; cancel++ {
							for _, anew := range []bool{false, true} {
								taken := popAt(t, f, cl, other, s, popSchedule{push, cancel, anew, stays})
								last = min(max(last, taken), 14)
							}
						}
					}
				})
			})
		}
	}
}

type popped struct {
	value string
	err   error
}

func popping(c context.Context, s *Client, done chan<- popped) {
	v, err := s.Pop(c, "q")
	done <- popped{string(v), err}
}

// popAt does as p says, and says how many steps that were.
func popAt(t *testing.T, f *fake, cl, other *Client, s *steps, p popSchedule) (taken int) {
	t.Helper()
	what := fmt.Sprintf("%+v", p)
	if p.anew {
		cl.dropIdle()
	}
	c, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	gone, stayed := make(chan popped, 1), make(chan popped, 1)
	if p.stays == staysBefore {
		go popping(t.Context(), other, stayed)
		time.Sleep(time.Second)
	}
	push := unlessDone(func() {
		if p.stays == staysThen {
			go popping(t.Context(), other, stayed)
			others()
		}
		f.apply(state.Command{Op: state.OpPush, Key: "/q", Value: []byte("first")})
		others()
	})
	end := unlessDone(func() { cancelNow(c, cancel, f) })
	at := map[int]func(){p.push: push, p.cancel: end}
	if p.push == p.cancel {
		at[p.push] = func() { cancel(); push() }
	}
	s.from(at, 0)
	go popping(c, cl, gone)
	time.Sleep(time.Second)
	taken = s.taken()
	first, then := push, end
	if p.cancel < p.push {
		first, then = end, push
	}
	first()
	time.Sleep(time.Millisecond) // in which the second may come to its step, too
	then()
	got := receive(t, gone, what)
	if got.err != nil {
		require.ErrorIs(t, got.err, context.Canceled, what)
		require.NotErrorIs(t, got.err, kv.ErrUncertain, what)
	} else if p.stays != nobodyStays {
		f.apply(state.Command{Op: state.OpPush, Key: "/q", Value: []byte("second")})
	}
	if p.stays == nobodyStays {
		stayed = nil
	}
	requireValuesOf(t, f, other, got, stayed, what)
	return max(taken, s.taken())
}

// requireValuesOf looks where the values are: each in one place, and who stayed has the one that
// the other has not. stayed is nil where nobody did.
func requireValuesOf(t *testing.T, f *fake, s *Client, got popped, stayed <-chan popped, what string) {
	t.Helper()
	switch {
	case stayed != nil && got.err == nil:
		require.ElementsMatch(t, []popped{{value: "first"}, {value: "second"}}, []popped{got, receive(t, stayed, what)}, what)
	case stayed != nil:
		require.Equal(t, popped{value: "first"}, receive(t, stayed, what), what)
	case got.err == nil:
		require.Equal(t, "first", got.value, what)
	default:
		v, ok, err := s.TryPop(t.Context(), "q")
		require.NoError(t, err, what)
		require.True(t, ok, what)
		require.Equal(t, "first", string(v), what)
	}
	n, err := s.Len(t.Context(), "q")
	require.NoError(t, err)
	require.Zero(t, n, what)
	time.Sleep(settleGrace + time.Second)
	require.Zero(t, f.stats().Waiters, what)
}

func receive(t *testing.T, done <-chan popped, what string) popped {
	t.Helper()
	select {
	case p := <-done:
		return p
	case <-time.After(10 * time.Second):
		require.Fail(t, "a Pop waits for ever", what)
	}
	return popped{}
}
