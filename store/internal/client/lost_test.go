package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/server"
	"github.com/weft-project/weft/store/internal/state"
)

func TestWaitsGoOnWhenTheServerVanishesAndComesBack(t *testing.T) {
	inEach(t, append(spoken, "2.0", "poll", "2.15"), func(t *testing.T, f *fake, cl *Client) {
		done := make(chan error, 4)
		go func() { done <- cl.Wait(t.Context(), "a", "b") }()
		go func() {
			v, err := cl.Get(t.Context(), "a")
			if err == nil && string(v) != "1" {
				err = fmt.Errorf("got %q", v)
			}
			done <- err
		}()
		go func() {
			_, err := cl.MultiGet(t.Context(), "a", "b", "a")
			done <- err
		}()
		for range 20 { // which is more often than a server may hang up at once
			synctest.Wait()
			f.stop()
			time.Sleep(2 * time.Second)
			f.start()
			time.Sleep(2 * time.Second)
		}
		f.set("/a", "1")
		f.set("/b", "2")
		for range 3 {
			require.NoError(t, <-done)
		}
	})
}

// That of a Pop that waits nothing was taken, and that who waits at a Barrier has arrived, is
// certain.
func TestAPopAndABarrierThatWaitGoOnWhenTheServerVanishesAndComesBack(t *testing.T) {
	for what, x := range map[string]struct {
		with    []string
		do, end func(*Client) error
	}{
		"pop": {[]string{"weft", "2.8", "2.15"}, func(cl *Client) error {
			v, err := cl.Pop(context.Background(), "q")
			if err == nil && string(v) != "1" {
				err = fmt.Errorf("popped %q", v)
			}
			return err
		}, func(cl *Client) error { return cl.Push(context.Background(), "q", []byte("1")) }},
		"barrier": {append(spoken, "2.15", "2.15 poll"), func(cl *Client) error { return cl.Barrier(context.Background(), "b", 2) },
			func(cl *Client) error { return cl.Barrier(context.Background(), "b", 2) }},
	} {
		t.Run(what, func(t *testing.T) {
			inEach(t, x.with, func(t *testing.T, f *fake, cl *Client) {
				done := make(chan error, 1)
				go func() { done <- x.do(cl) }()
				for range 20 {
					synctest.Wait()
					f.stop()
					time.Sleep(2 * time.Second)
					f.start()
					time.Sleep(2 * time.Second)
				}
				require.NoError(t, x.end(cl))
				require.NoError(t, <-done)
				n, err := cl.Add(t.Context(), "b", 0)
				require.NoError(t, err)
				require.Equal(t, map[string]int64{"pop": 0, "barrier": 2}[what], n, "nobody arrived twice")
			})
		})
	}
}

// hangUpOnce makes the fake hang up at the first command of its kind, before or after it was
// applied.
func hangUpOnce(f *fake, o state.Op, after bool) {
	first := true
	hook := func(cmd state.Command) bool {
		if cmd.Op != o || !first {
			return false
		}
		first = false
		return true
	}
	if after {
		f.on, f.after = nil, hook
	} else {
		f.on, f.after = hook, nil
	}
}

func TestWhatMayBeDoneTwiceIsRepeatedWhenTheAnswerIsLost(t *testing.T) {
	for _, after := range []bool{false, true} {
		inEach(t, []string{"weft", "2.6"}, func(t *testing.T, f *fake, cl *Client) {
			c := t.Context()
			hangUpOnce(f, state.OpSet, after)
			require.NoError(t, cl.Set(c, "k", []byte("v")))
			hangUpOnce(f, state.OpMultiSet, after)
			require.NoError(t, cl.MultiSet(c, kv.Pair{Key: "a", Value: nil}, kv.Pair{Key: "b", Value: nil}))
			hangUpOnce(f, state.OpDelete, after)
			was, err := cl.Delete(c, "k")
			require.NoError(t, err)
			require.Equal(t, !after, was, "if it was removed before, the answer is that of the second time")
			hangUpOnce(f, state.OpCheck, after)
			there, err := cl.Check(c, "a", "b")
			require.NoError(t, err)
			require.True(t, there)
			hangUpOnce(f, state.OpNumKeys, after)
			n, err := cl.NumKeys(c)
			require.NoError(t, err)
			require.Equal(t, int64(2), n)
		})
	}
}

// onceOnly is every change that must not be made twice, and how often it was made.
var onceOnly = map[state.Op]struct {
	do    func(context.Context, *Client) error
	times func(*state.State) int
}{
	state.OpAdd: {func(c context.Context, cl *Client) error { _, err := cl.Add(c, "k", 1); return err },
		func(s *state.State) int { n, _ := strconv.Atoi(stored(s, "/k")); return n }},
	state.OpCompareSet: {func(c context.Context, cl *Client) error {
		_, err := cl.CompareSet(c, "k", nil, []byte("v"))
		return err
	},
		func(s *state.State) int { return len(stored(s, "/k")) }},
	state.OpAppend: {func(c context.Context, cl *Client) error { return cl.Append(c, "k", []byte("x")) },
		func(s *state.State) int { return len(stored(s, "/k")) }},
	state.OpPush: {func(c context.Context, cl *Client) error { return cl.Push(c, "k", []byte("x")) },
		func(s *state.State) int { return queued(s, "/k") }},
	state.OpPop: {func(c context.Context, cl *Client) error { _, _, err := cl.TryPop(c, "q"); return err },
		func(s *state.State) int { return 9 - queued(s, "/q") }},
	state.OpArrive: {func(c context.Context, cl *Client) error { return cl.Barrier(c, "k", 1) },
		func(s *state.State) int { n, _ := strconv.Atoi(stored(s, "/k")); return n }},
}

func stored(s *state.State, key string) string {
	v, _ := s.Value(key)
	return string(v)
}

func queued(s *state.State, key string) int {
	return int(s.Apply(0, state.Command{Op: state.OpLen, Key: key}, nil)[0].N)
}

func TestAChangeThatMayHaveBeenAppliedIsNotRepeatedAndItsErrorSaysSo(t *testing.T) {
	for o, tc := range onceOnly {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v", o, after), func(t *testing.T) {
				inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
					for range 9 {
						f.apply(state.Command{Op: state.OpPush, Key: "/q"})
					}
					hangUpOnce(f, o, after)
					err := tc.do(t.Context(), cl)
					require.ErrorIs(t, err, kv.ErrUncertain)
					require.ErrorIs(t, err, kv.ErrUnreachable)
					require.ErrorContains(t, err, "store fake:1: ")
					require.ErrorContains(t, err, "the connection was closed")
					f.mu.Lock()
					times := tc.times(f.state)
					f.mu.Unlock()
					want := 0
					if after {
						want = 1
					}
					require.Equal(t, want, times)
				})
			})
		}
	}
}

func TestAChangeOfWhichNothingWasSentIsMadeWhenTheServerIsBack(t *testing.T) {
	for o, tc := range onceOnly {
		t.Run(o.String(), func(t *testing.T) {
			inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
				for range 9 {
					f.apply(state.Command{Op: state.OpPush, Key: "/q"})
				}
				f.stop()
				synctest.Wait()
				time.AfterFunc(time.Minute, f.start)
				require.NoError(t, tc.do(t.Context(), cl))
				f.mu.Lock()
				defer f.mu.Unlock()
				require.Equal(t, 1, tc.times(f.state))
			})
		})
	}
}

// The kernel takes what is written to a server that has gone, so the client looks before it writes.
func TestAfterARestartNoIdleConnectionSwallowsAChange(t *testing.T) {
	s := serve(t, server.Config{})
	addr := s.Addr()
	cl, err := Dial(t.Context(), Config{Addr: addr, Timeout: 20 * time.Second})
	require.NoError(t, err)
	defer cl.Close()
	for range 3 {
		_, err = cl.Add(t.Context(), "n", 1)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		cl.mu.Lock()
		for _, l := range cl.idle { // as if it had been so for a while
			l.idle = l.idle.Add(-idleCheck)
		}
		require.Len(t, cl.idle, 1)
		require.Eventually(t, func() bool { return !quiet(cl.idle[0].nc) }, 10*time.Second, time.Millisecond)
		cl.mu.Unlock()
		s = serve(t, server.Config{Addr: addr})
		n, err := cl.Add(t.Context(), "n", 1)
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	}
}

func TestAServerThatDoesNotComeBackIsReportedAtTheDeadline(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		f.stop()
		c, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		errs := []error{cl.Wait(c, "k"), cl.Set(t.Context(), "k", nil)}
		require.Equal(t, 10*time.Second+kv.DefaultTimeout, time.Since(start))
		for _, err := range errs {
			require.ErrorIs(t, err, kv.ErrTimeout)
			require.ErrorIs(t, err, kv.ErrUnreachable)
			require.NotErrorIs(t, err, kv.ErrUncertain, "nothing was sent")
			require.ErrorContains(t, err, "connection refused")
		}
		require.ErrorContains(t, errs[0], "wait timeout after 10000ms, keys: /k")
		require.Less(t, f.dialed, 1000)
	})
}

func TestAServerThatHangsUpAtAQuestionIsNotAskedForEver(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		f.on = func(cmd state.Command) bool { return cmd.Op == state.OpSet || cmd.Op == state.OpNumKeys }
		start := time.Now()
		err := cl.Set(t.Context(), "k", nil)
		require.ErrorIs(t, err, kv.ErrUnreachable)
		require.ErrorIs(t, err, kv.ErrUncertain)
		require.ErrorContains(t, err, "the server does not take what it is asked")
		_, err = cl.NumKeys(t.Context())
		require.ErrorIs(t, err, kv.ErrUnreachable)
		require.NotErrorIs(t, err, kv.ErrUncertain)
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

func TestAnAnswerThatDoesNotComeInTimeLeavesAChangeUncertain(t *testing.T) {
	inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
		f.mute = func(cmd state.Command) bool { return cmd.Op != state.OpCheck && cmd.Op != state.OpPing }
		for o, tc := range onceOnly {
			c, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			err := tc.do(c, cl)
			require.ErrorIs(t, err, kv.ErrTimeout, o)
			require.ErrorIs(t, err, kv.ErrUncertain, o)
			require.LessOrEqual(t, time.Since(start), time.Second+cancelGrace)
			cancel()
		}
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := cl.Get(c, "k")
		require.ErrorIs(t, err, kv.ErrTimeout)
		require.NotErrorIs(t, err, kv.ErrUncertain)
	})
}

// To a server of PyTorch's a new connection is work during which it serves nobody, and the old one
// is as good when the answer has come.
func TestTheConnectionOfACancelledChangeIsUsedAgain(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		f.mu.Lock()
		before := f.dialed
		f.late = time.Second
		f.mu.Unlock()
		for range 20 {
			c, cancel := context.WithTimeout(t.Context(), time.Second/2)
			_, err := cl.Add(c, "n", 1)
			cancel()
			require.ErrorIs(t, err, kv.ErrTimeout)
			require.ErrorIs(t, err, kv.ErrUncertain)
			time.Sleep(time.Second)
		}
		f.mu.Lock()
		f.late = 0
		f.mu.Unlock()
		n, err := cl.Add(t.Context(), "n", 1)
		require.NoError(t, err)
		require.Equal(t, int64(21), n, "not the answer to another")
		require.Equal(t, before, f.dialed)
	})
}

// PyTorch's servers tell one of those who wait of a push, and nobody else where that one has given
// up.
func TestAPopAtAServerOfPyTorchsLooksAgainInCaseItWasNotTold(t *testing.T) {
	inEach(t, []string{"2.8", "2.15"}, func(t *testing.T, f *fake, cl *Client) {
		f.deaf = true
		other := f.client(Config{})
		time.AfterFunc(time.Minute, func() { _ = other.Push(context.Background(), "q", []byte("v")) })
		start := time.Now()
		v, err := cl.Pop(t.Context(), "q")
		require.NoError(t, err)
		require.Equal(t, "v", string(v))
		require.Less(t, time.Since(start), time.Minute+2*time.Second)
	})
}

// What a look at the queue says that was under way is waited for, lest a value be lost; there is no
// time for more.
func TestAPopThatIsOverWhileItLooksDoesNotBeginToWait(t *testing.T) {
	inEach(t, []string{"weft", "2.8"}, func(t *testing.T, f *fake, cl *Client) {
		_, err := cl.Len(t.Context(), "q")
		require.NoError(t, err)
		f.mu.Lock()
		before := f.dialed
		f.late = cancelGrace / 2
		f.mu.Unlock()
		c, cancel := context.WithTimeout(t.Context(), cancelGrace/4)
		defer cancel()
		start := time.Now()
		_, err = cl.Pop(c, "q")
		require.ErrorIs(t, err, kv.ErrTimeout)
		require.NotErrorIs(t, err, kv.ErrUncertain)
		require.Equal(t, cancelGrace/2, time.Since(start))
		f.mu.Lock()
		f.late = 0
		f.mu.Unlock()
		require.NoError(t, cl.Push(t.Context(), "q", []byte("v")))
		v, err := cl.Pop(t.Context(), "q")
		require.NoError(t, err)
		require.Equal(t, "v", string(v))
		require.Equal(t, before, f.dialed)
	})
}

func TestNoMoreConnectionsAreKeptForLateAnswersThanForUse(t *testing.T) {
	inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
		f.mute = func(cmd state.Command) bool { return cmd.Op == state.OpAdd }
		for range 20 {
			c, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := cl.Add(c, "n", 1)
			cancel()
			require.ErrorIs(t, err, kv.ErrUncertain)
		}
		synctest.Wait()
		cl.mu.Lock()
		require.Len(t, cl.live, cl.cfg.MaxIdle)
		cl.mu.Unlock()
		time.Sleep(settleGrace)
		synctest.Wait()
		cl.mu.Lock()
		require.Empty(t, cl.live, "what is not answered is given up")
		cl.mu.Unlock()
	})
}

// A change that is told to be impossible has not happened, though it was sent.
func TestWhatTheServerRefusesIsCertain(t *testing.T) {
	inEach(t, []string{"weft"}, func(t *testing.T, f *fake, cl *Client) {
		f.set("/k", "no number")
		f.state.Limits.Memory = 1
		_, addErr := cl.Add(t.Context(), "k", 1)
		require.ErrorIs(t, addErr, kv.ErrNotANumber)
		setErr := cl.Set(t.Context(), "other", []byte("much"))
		require.ErrorIs(t, setErr, kv.ErrFull)
		for _, err := range []error{addErr, setErr} {
			require.NotErrorIs(t, err, kv.ErrUncertain)
			require.NotErrorIs(t, err, kv.ErrUnreachable)
		}
		require.Len(t, f.conns, 1, "and the connection is as good as before")
	})
}

func TestCloseEndsWhatTriesToReconnect(t *testing.T) {
	inEach(t, spoken, func(t *testing.T, f *fake, cl *Client) {
		f.stop()
		done := make(chan error)
		go func() { done <- cl.Wait(t.Context(), "k") }()
		time.Sleep(time.Minute)
		require.NoError(t, cl.Close())
		require.ErrorIs(t, <-done, kv.ErrClosed)
		require.True(t, errors.Is(cl.Set(t.Context(), "k", nil), kv.ErrClosed))
	})
}
