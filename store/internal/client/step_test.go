package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// steps counts what a client does with its connections, and has something done at some of these
// steps.
type steps struct {
	mu   sync.Mutex
	n    int
	at   map[int]func()
	slow time.Duration // for so long the end of an operation takes to reach the connection, and as long to be done with
}

// from begins to count anew.
func (s *steps) from(at map[int]func(), slow time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.at, s.slow = 0, at, slow
}

func (s *steps) next() {
	s.mu.Lock()
	s.n++
	do := s.at[s.n]
	s.mu.Unlock()
	if do != nil {
		do()
	}
}

func (s *steps) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// stepped is a connection on which there is a step before and after whatever is done.
type stepped struct {
	net.Conn
	*steps
}

func (c stepped) Read(b []byte) (int, error) {
	c.next()
	defer c.next()
	return c.Conn.Read(b)
}

func (c stepped) Write(b []byte) (int, error) {
	c.next()
	defer c.next()
	return c.Conn.Write(b)
}

func (c stepped) SetDeadline(t time.Time) error {
	if t.Equal(time.Unix(1, 0)) {
		time.Sleep(c.slow)
		defer time.Sleep(c.slow)
		return c.Conn.SetDeadline(t)
	}
	c.next()
	defer c.next()
	return c.Conn.SetDeadline(t)
}

// stepwise is a client of f whose steps are counted.
func stepwise(t *testing.T, f *fake) (*Client, *steps) {
	s := new(steps)
	cl, err := Dial(t.Context(), Config{Addr: "fake:1", dial: func(c context.Context, addr string) (net.Conn, error) {
		nc, err := f.dial(c, addr)
		return stepped{nc, s}, err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close() })
	return cl, s
}

// mutes makes the server say nothing from now on, or speak again.
func (f *fake) mutes(mute bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute = nil
	if mute {
		f.mute = func(state.Command) bool { return true }
	}
}

// ending is how an operation is over before it is done.
type ending struct {
	name    string
	c       func(c context.Context) (context.Context, context.CancelFunc) // what it is begun with
	end     func(c context.Context, cancel context.CancelFunc, f *fake)   // returns when that is over
	slow    time.Duration                                                 // see steps
	overrun time.Duration                                                 // which it may have
}

var endings = []ending{
	{"cancelled", context.WithCancel, cancelNow, 0, moment},
	{"cancelled before its deadline", bounded, cancelNow, 0, moment},
	{"cancelled slowly", bounded, func(_ context.Context, cancel context.CancelFunc, _ *fake) { cancel() }, time.Millisecond, 10 * time.Millisecond},
	{"cancelled, and the server is mute", bounded, func(c context.Context, cancel context.CancelFunc, f *fake) {
		f.mutes(true)
		cancelNow(c, cancel, f)
	}, 0, cancelGrace + moment},
	{"too late", bounded, func(c context.Context, _ context.CancelFunc, _ *fake) {
		<-c.Done()
		others()
	}, 0, moment},
	{"later than the store allows", func(context.Context) (context.Context, context.CancelFunc) {
		return context.Background(), func() {}
	}, func(context.Context, context.CancelFunc, *fake) { time.Sleep(kv.DefaultTimeout + moment) }, 0, 0},
}

func bounded(c context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c, time.Minute)
}

// cancelNow returns when everybody has heard of it.
func cancelNow(_ context.Context, cancel context.CancelFunc, _ *fake) {
	cancel()
	others()
}

const moment = time.Microsecond

// others lets everybody go on until they wait: in a bubble the clock stands still until then.
func others() { time.Sleep(time.Nanosecond) }

// A server of PyTorch 1.13 and its like is known by an answer, for which nobody waits longer than
// for anything else.
func TestADialEndsInTimeWhereAServerDoesNotSayWhichItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, "1.13")
		f.mutes(true)
		dial := func(c context.Context, timeout time.Duration) error {
			cl, err := Dial(c, Config{Addr: "fake:1", Timeout: timeout, dial: f.dial})
			if err == nil {
				cl.Close()
			}
			return err
		}
		start := time.Now()
		require.ErrorIs(t, dial(t.Context(), time.Second), kv.ErrTimeout)
		require.Equal(t, time.Second, time.Since(start))
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, dial(c, 0), kv.ErrTimeout)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.ErrorIs(t, dial(t.Context(), time.Hour), kv.ErrUnreachable)
	})
}

// operations are one of each kind, of which some wait.
var operations = map[string]func(c context.Context, s *Client) error{
	"wait":        func(c context.Context, s *Client) error { return s.Wait(c, "a", "b") },
	"get":         func(c context.Context, s *Client) error { _, err := s.Get(c, "a"); return err },
	"get what is": func(c context.Context, s *Client) error { _, err := s.Get(c, "there"); return err },
	"multi_get":   func(c context.Context, s *Client) error { _, err := s.MultiGet(c, "a", "b"); return err },
	"barrier":     func(c context.Context, s *Client) error { return s.Barrier(c, "all", 1<<40) },
	"pop":         func(c context.Context, s *Client) error { _, err := s.Pop(c, "q"); return err },
	"push":        func(c context.Context, s *Client) error { return s.Push(c, "other q", nil) },
	"set":         func(c context.Context, s *Client) error { return s.Set(c, "there", nil) },
	"add":         func(c context.Context, s *Client) error { _, err := s.Add(c, "n", 1); return err },
}

// Every operation, ended at every step that it takes with its connection, one that is used for the
// first time, or one on which an operation was ended before: it ends then.
func TestAnOperationEndsAtWhicheverOfItsStepsItsTimeIsOver(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		for _, release := range []string{"weft", "2.15", "2.6", "1.13"} {
			if queues := release == "weft" || release == "2.15"; !queues && (name == "pop" || name == "push") {
				continue
			}
			for _, e := range endings {
				t.Run(fmt.Sprintf("%s/%s/%s", name, release, e.name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFake(t, release)
						cl, s := stepwise(t, f)
						f.set("/there", "")
						for at, waits := 1, false; !waits && at < 24; at++ {
							waits = endAt(t, f, cl, s, at, e, op)
							cl.dropIdle()
							endAt(t, f, cl, s, at, e, op)
						}
					})
				})
			}
		}
	}
}

// endAt has op be over at one of its steps, and requires it to end. When it takes fewer, and waits,
// or is done, it is over then, and waits is true.
func endAt(t *testing.T, f *fake, cl *Client, s *steps, at int, e ending, op func(context.Context, *Client) error) (waits bool) {
	t.Helper()
	c, cancel := e.c(t.Context())
	defer cancel()
	var over time.Time
	end := unlessDone(func() { e.end(c, cancel, f); over = time.Now() })
	s.from(map[int]func(){at: end}, e.slow)
	type result struct {
		err error
		at  time.Time
	}
	done := make(chan result, 1)
	go func() { err := op(c, cl); done <- result{err, time.Now()} }()
	time.Sleep(2 * time.Second) // in which who is not told looks now and then
	if waits = s.taken() < at; waits {
		end()
	}
	select {
	case r := <-done:
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			require.ErrorIs(t, r.err, kv.ErrTimeout)
		}
		require.LessOrEqual(t, r.at.Sub(over), e.overrun, "step %d", at)
	case <-time.After(10 * time.Minute):
		require.Fail(t, "the operation waits for ever", "step %d", at)
	}
	f.mutes(false)
	time.Sleep(settleGrace + time.Second)
	return waits
}

func unlessDone(do func()) func() {
	var done atomic.Bool
	return func() {
		if !done.Swap(true) {
			do()
		}
	}
}
