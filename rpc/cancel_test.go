package rpc

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// causes are functions that wait until their contexts end, and the causes of these.
type causes struct {
	here  chan string // who has begun to wait
	ended map[string]chan error
	wait  *Func[[]string, int] // calls itself on the workers of the list, one from the next; the last one waits
	later *Func[int, int]
}

func newCauses(n int) *causes {
	s := &causes{here: make(chan string, n), ended: map[string]chan error{}}
	for _, name := range []string{"worker0", "worker1", "worker2"} {
		s.ended[name] = make(chan error, 1)
	}
	s.wait = Define("wait", func(c context.Context, on []string) (int, error) {
		w, _ := FromContext(c)
		if len(on) > 0 {
			return s.wait.Call(c, on[0], on[1:])
		}
		s.here <- w.Name()
		<-c.Done()
		s.ended[w.Name()] <- context.Cause(c)
		return 0, context.Cause(c)
	})
	s.later = DefineAsync("later", func(c context.Context, _ int) (*Future[int], error) {
		w, _ := FromContext(c)
		context.AfterFunc(c, func() { s.ended[w.Name()] <- context.Cause(c) })
		s.here <- w.Name()
		return NewPromise[int]("later").Future(), nil
	})
	return s
}

// cancelled is the cause with which the function on a worker was cancelled.
func (s *causes) cancelled(t *testing.T, worker string) *CancelError {
	t.Helper()
	cause := <-s.ended[worker]
	var e *CancelError
	require.ErrorAs(t, cause, &e)
	require.Equal(t, worker, e.Worker)
	for _, part := range []string{e.Worker, e.Function, e.Caller, e.By, e.Reason} {
		require.NotEmpty(t, part)
		require.ErrorContains(t, cause, part)
	}
	return e
}

// onEveryWay runs a test on the simulated network and on every lane that can carry calls.
func onEveryWay(t *testing.T, n int, run func(t *testing.T, ws []*Worker, s *causes)) {
	ways := map[string][]string{"simnet": nil, "all lanes": {}, "quic": {transport.LaneQUIC}, "bulk": {transport.LaneBulk}}
	if runtime.GOOS == "linux" {
		ways["local"] = []string{transport.LaneLocal}
	}
	for name, lanes := range ways {
		t.Run(name, func(t *testing.T) {
			s := newCauses(n)
			change := func(_ int, cfg *Config) {
				cfg.Functions, cfg.Lanes = []Function{s.wait, s.later}, lanes
			}
			if lanes == nil {
				run(t, sim(t, n, change), s)
				return
			}
			run(t, world(t, n, nil, change), s)
		})
	}
}

func TestTheCauseOfACancelledHandlerSaysWhoCancelledWhatAndWhy(t *testing.T) {
	onEveryWay(t, 3, func(t *testing.T, ws []*Worker, s *causes) {
		c, cancel := context.WithCancelCause(ws[0].Context(t.Context()))
		f := s.wait.Async(c, "worker1", nil)
		<-s.here
		cancel(errors.New("the user pressed stop"))
		e := s.cancelled(t, "worker1")
		require.Equal(t, &CancelError{Worker: "worker1", Function: "wait", Caller: "worker0", By: "worker0", Reason: "the user pressed stop", kinds: e.kinds}, e)
		require.EqualError(t, e, `worker1: "wait", called by worker0, was cancelled by worker0: the user pressed stop`)
		require.ErrorIs(t, e, context.Canceled)
		require.ErrorIs(t, e, transport.ErrReset)
		require.NotErrorIs(t, e, ErrTimeout)
		_, err := f.Wait(t.Context())
		require.ErrorContains(t, err, "the user pressed stop")

		c, plain := context.WithCancel(ws[0].Context(t.Context()))
		s.later.Async(c, "worker1", 1)
		<-s.here
		plain()
		e = s.cancelled(t, "worker1")
		require.Equal(t, "later", e.Function)
		require.Equal(t, "context canceled", e.Reason)
		require.ErrorIs(t, e, context.Canceled)

		c, cancel = context.WithCancelCause(ws[0].Context(t.Context())) // by way of another
		s.wait.Async(c, "worker1", []string{"worker2"})
		<-s.here
		cancel(errors.New("the user pressed stop"))
		e = s.cancelled(t, "worker2")
		require.Equal(t, "worker1", e.By)
		require.Contains(t, e.Reason, "called by worker0, was cancelled by worker0: the user pressed stop")
		require.ErrorIs(t, e, context.Canceled)
	})
}

// inTime calls wait on worker1 with so much time that the function begins before that is up.
func (s *causes) inTime(c context.Context) *Future[int] {
	for most := 10 * time.Millisecond; ; most *= 2 {
		f := s.wait.Async(WithTimeout(c, most), "worker1", nil)
		select {
		case <-s.here:
			return f
		case <-f.Done():
		}
	}
}

func TestTheCauseOfAHandlerWhoseTimeIsUpIsATimeout(t *testing.T) {
	onEveryWay(t, 2, func(t *testing.T, ws []*Worker, s *causes) {
		f := s.inTime(ws[0].Context(t.Context()))
		e := s.cancelled(t, "worker1") // by its own clock, or by the caller's word
		require.Equal(t, "worker0", e.By)
		require.ErrorIs(t, e, context.DeadlineExceeded)
		require.ErrorIs(t, e, ErrTimeout)
		require.NotErrorIs(t, e, context.Canceled)
		_, err := f.Wait(t.Context())
		require.ErrorIs(t, err, ErrTimeout)
	})
}

func TestTheCauseOfAHandlerWhosePassWasLeftNamesThePassAndWhoLeftIt(t *testing.T) {
	onEveryWay(t, 3, func(t *testing.T, ws []*Worker, s *causes) {
		for on, chain := range map[string][]string{"worker1": nil, "worker2": {"worker2"}} {
			var id ctx.PassID
			require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
				p, _ := ctx.From(c)
				id = p.ID()
				s.wait.Async(c, "worker1", chain)
				<-s.here
				return nil
			}))
			e := s.cancelled(t, on)
			require.Equal(t, id, e.Pass)
			require.ErrorContains(t, e, "pass "+id.String())
			require.Contains(t, []string{"worker0", e.Caller}, e.By, "the clean-up, or the call's own end")
			require.Contains(t, e.Reason, ctx.ErrLeft.Error())
			require.ErrorIs(t, e, ctx.ErrLeft)
			require.ErrorIs(t, e, context.Canceled)
			for _, w := range ws {
				require.NoError(t, w.Settle(t.Context()))
			}
		}
	})
}

func TestTheCauseOfAHandlerWhoseCallerHasLeftSaysSo(t *testing.T) {
	onEveryWay(t, 3, func(t *testing.T, ws []*Worker, s *causes) {
		s.wait.Async(ws[0].Context(t.Context()), "worker1", nil)
		<-s.here
		s.wait.Async(ws[1].Context(t.Context()), "worker2", nil)
		<-s.here
		require.NoError(t, ws[0].Close())
		e := s.cancelled(t, "worker1")
		require.Equal(t, "worker0", e.By)
		require.ErrorIs(t, e, ErrPeerLeft)
		require.ErrorIs(t, e, context.Canceled)
		require.NoError(t, ws[2].Close())
		e = s.cancelled(t, "worker2")
		require.Equal(t, "worker2", e.By, "it has left itself")
		require.ErrorIs(t, e, ErrLeft)
		require.ErrorIs(t, e, context.Canceled)
	})
}

func TestTheCauseOfAHandlerWhoseCallerOrOpenerIsLostNamesWhoIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCauses(3)
		ws, net := simWith(t, 3, simnet.Config{Detect: 6 * time.Second}, serve(s.wait))
		_, p, err := ws[0].passes.Open(ws[0].Context(t.Context()))
		require.NoError(t, err)
		defer p.Leave()
		s.wait.Async(ws[0].Context(t.Context()), "worker1", nil)
		<-s.here
		c, q, err := ws[0].passes.Open(ws[0].Context(t.Context()))
		require.NoError(t, err)
		defer q.Leave()
		s.wait.Async(c, "worker1", []string{"worker2"})
		<-s.here
		net.Kill("host0")
		for _, on := range []string{"worker1", "worker2"} {
			e := s.cancelled(t, on)
			if on == "worker2" && e.By == "worker1" { // whose own handler has ended
				require.Contains(t, e.Reason, "worker0")
			} else {
				require.Equal(t, "worker0", e.By)
			}
			require.ErrorIs(t, e, ErrPeerLost)
			require.ErrorIs(t, e, context.Canceled)
		}
		net.Kill("host1") // or they wait for one another to the end
		net.Kill("host2")
	})
}

func TestWhatWasLostIsCountedAsLostAndOtherCancellationsAsSuch(t *testing.T) {
	c := &callContext{w: &Worker{name: "worker1"}, p: &membership.Peer{Name: "worker0"}}
	lost, reset := &transport.Error{Err: transport.ErrPeerLost}, &transport.Error{Err: transport.ErrReset}
	require.Equal(t, counts.OutcomeLost, outcomeOf(c.streamOver(lost)))
	require.Equal(t, counts.OutcomeCancelled, outcomeOf(c.streamOver(reset)))
	require.Equal(t, counts.OutcomeTimeout, outcomeOf(c.timeOver()))
	require.Equal(t, counts.OutcomeCancelled, outcomeOf(c.passOver(ctx.ErrLeft)))
	require.Same(t, transport.ErrFinished, c.streamOver(transport.ErrFinished), "it was answered")
	for _, code := range []uint16{0, 9999} {
		require.Equal(t, []error{context.Canceled}, kindsOf(code))
	}
	for _, s := range endings {
		r := transport.ReasonOf(reasonOf(s))
		require.Contains(t, kindsOf(r.Code), s)
	}
}
