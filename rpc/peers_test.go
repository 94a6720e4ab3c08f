package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// wait blocks until its context ends.
var wait = Define("wait", func(c context.Context, _ int) (int, error) { <-c.Done(); return 0, context.Cause(c) })

func TestAKilledWorkerFailsItsCallsAndNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		gate := make(chan struct{})
		slow := gated(gate)
		ws, n := simWith(t, 4, simnet.Config{Detect: 6 * time.Second, MinDelay: time.Millisecond}, func(_ int, cfg *Config) {
			cfg.Functions, cfg.Logger = []Function{wait, double, slow}, logs.logger()
		})
		c := ws[0].Context(t.Context())
		doomed := []*Future[int]{wait.Async(c, "worker1", 0), wait.Async(ws[2].Context(t.Context()), "worker1", 0)}
		healthy := slow.Async(c, "worker2", 0)
		remote := wait.Remote(c, "worker1", 0)
		synctest.Wait()
		n.Kill("host1")
		start := time.Now()
		for _, f := range doomed {
			_, err := f.Wait(t.Context())
			require.Equal(t, 6*time.Second, time.Since(start))
			require.ErrorIs(t, err, ErrPeerLost)
			require.ErrorIs(t, err, transport.ErrPeerLost)
			require.NotErrorIs(t, err, ErrPeerLeft)
			require.ErrorContains(t, err, "worker1")
		}
		require.ErrorIs(t, remote.Ready(c), ErrPeerLost)
		synctest.Wait()
		for range 3 {
			_, err := double.Call(c, "worker1", 1)
			require.ErrorIs(t, err, ErrPeerLost)
			require.ErrorContains(t, err, "worker1")
		}
		require.Equal(t, 6*time.Second, time.Since(start), "later calls fail at once")
		close(gate)
		got, err := healthy.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, got)
		got, err = double.Call(ws[2].Context(t.Context()), "worker3", 2)
		require.NoError(t, err)
		require.Equal(t, 4, got)
		for _, w := range []string{"worker0", "worker2", "worker3"} {
			require.Equal(t, 1, logs.count(`msg="lost a worker" worker=`+w+" peer=worker1"), "each survivor says so once")
		}
	})
}

func TestACutNetworkThatHealsInTimeLosesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 2, simnet.Config{Detect: 6 * time.Second, MinDelay: time.Millisecond}, serve(double))
		n.Cut("host0", "host1")
		f := double.Async(ws[0].Context(t.Context()), "worker1", 4)
		time.Sleep(5 * time.Second)
		n.Heal("host0", "host1")
		got, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 8, got)
	})
}

func TestPassesOfALostWorkerAreFreedWhereverTheyReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := Define("relay", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			return twice.Call(c, "worker2", x)
		})
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, serve(relay, twice))
		x := autodiff.Rand(64).RequireGrad()
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			_, err := relay.Call(c, "worker1", x)
			require.NoError(t, err)
			require.Len(t, ws[1].Passes(), 1)
			require.Len(t, ws[2].Passes(), 1)
			n.Kill("host0")
			time.Sleep(7 * time.Second)
			synctest.Wait()
			require.Empty(t, ws[1].Passes())
			require.Empty(t, ws[2].Passes())
			return nil
		}))
	})
}

// Nobody would ever tell worker2 to free a pass whose opener is gone.
func TestAStragglerOfALostWorkersPassIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, serve(double))
		n.Kill("host0")
		time.Sleep(7 * time.Second)
		raw := rawHeader(t, wire.CallHeader{Function: "double", Args: []byte{1}, Pass: &wire.PassInfo{Pass: 1234, Message: 1}})
		reply, err := exchange(t.Context(), ws[1].members.All()[2].Link, &transport.Message{Kind: wire.KindCall, Header: raw}, nil)
		require.NoError(t, err)
		err = answered(reply)
		require.ErrorIs(t, err, ctx.ErrUnknownPass)
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorContains(t, err, "worker0")
		require.Empty(t, ws[2].Passes())
	})
}

func TestCloseDoesNotWaitForACallThatIsStillDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 1, simnet.Config{MinDelay: time.Second}, serve(double))
		f := double.Async(ws[0].Context(t.Context()), "worker0", 1)
		synctest.Wait()
		start := time.Now()
		require.NoError(t, ws[0].Close())
		_, err := f.Wait(t.Context())
		require.ErrorIs(t, err, ErrLeft)
		require.Zero(t, time.Since(start))
	})
}

func TestWhenOneHasLeftAllNamesAndRanksAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 3, simnet.Config{Delay: func(from, to string, _ *rand.Rand) time.Duration {
			if from == "host2" && to == "host1" { // worker1 hears late that worker2 leaves
				return time.Second
			}
			return time.Millisecond
		}}, nil)
		done := make(chan error, 2)
		for _, w := range ws[1:] {
			go func() { done <- w.Leave(t.Context()) }()
		}
		require.NoError(t, ws[0].Leave(t.Context()))
		keys, err := ws[0].members.Registry.Store.NumKeys(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, keys, "the count of joinings stays")
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

func TestABackwardThatWaitsForALostWorkerFailsAndNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, serve(twice))
		x := autodiff.Rand(4).RequireGrad()
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y, err := twice.Call(c, "worker1", x)
			require.NoError(t, err)
			loss := autodiff.Sum(y)
			n.Kill("host1")
			start := time.Now()
			err = ctx.Backward(c, loss)
			require.Equal(t, 2400*time.Millisecond, time.Since(start))
			require.ErrorIs(t, err, ctx.ErrPeerLost)
			require.ErrorIs(t, err, ErrPeerLost)
			require.ErrorContains(t, err, "worker1")
			return nil
		}))
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y, err := twice.Call(c, "worker2", x)
			require.NoError(t, err)
			return ctx.Backward(c, autodiff.Sum(y))
		}), "the next pass goes without it")
	})
}

func TestAWorkerThatClosesHasLeftAndIsNotLost(t *testing.T) {
	for name, network := range map[string]func(int) transport.Network{"simnet": onSim(simnet.New(simnet.Config{})), "quic": nil} {
		t.Run(name, func(t *testing.T) {
			entered := make(chan struct{}, 2)
			stay := Define("stay", func(c context.Context, _ int) (int, error) {
				entered <- struct{}{}
				<-c.Done()
				return 0, context.Cause(c)
			})
			ws := world(t, 2, network, serve(stay, double))
			c0, c1 := ws[0].Context(t.Context()), ws[1].Context(t.Context())
			out, in := stay.Async(c1, "worker0", 0), stay.Async(c0, "worker1", 0)
			self := wait.Async(c1, "worker1", 0)
			<-entered
			<-entered
			require.NoError(t, ws[1].Close())
			require.NoError(t, ws[1].Close())
			_, err := out.Wait(t.Context())
			require.ErrorIs(t, err, ErrLeft)
			_, err = self.Wait(t.Context())
			require.Error(t, err)
			_, err = in.Wait(t.Context())
			require.ErrorIs(t, err, ErrPeerLeft)
			require.NotErrorIs(t, err, ErrPeerLost)
			require.ErrorContains(t, err, "worker1")
			<-ws[0].members.All()[1].Link.Done()
			_, err = double.Call(c0, "worker1", 0)
			require.ErrorIs(t, err, ErrPeerLeft)
			_, err = double.Call(c1, "worker0", 0)
			require.ErrorIs(t, err, ErrLeft)
			_, err = double.Async(c1, "worker1", 0).Wait(t.Context())
			require.ErrorIs(t, err, ErrLeft)
			require.ErrorIs(t, double.Remote(c1, "worker0", 0).Ready(t.Context()), ErrLeft)
			require.ErrorIs(t, ws[1].Pass(t.Context(), func(context.Context) error { return nil }), ctx.ErrLeft)
			n, err := double.Call(c0, "worker0", 1)
			require.NoError(t, err)
			require.Equal(t, 2, n)
		})
	}
}

func TestLeaveWaitsForCallsAndForTheOthersAndServesThemMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := Define("slow", func(_ context.Context, d time.Duration) (int, error) { time.Sleep(d); return 1, nil })
		ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, serve(slow, double))
		start := time.Now()
		at := make([]time.Duration, 3)
		errs := make(chan error, 3)
		leave := func(i int) {
			err := ws[i].Leave(t.Context())
			at[i] = time.Since(start)
			errs <- err
		}
		f := slow.Async(ws[0].Context(t.Context()), "worker1", 5*time.Second)
		synctest.Wait()
		go leave(0)
		go leave(1)
		time.Sleep(9 * time.Second)
		n, err := double.Call(ws[2].Context(t.Context()), "worker0", 3)
		require.NoError(t, err, "who waits to leave still serves")
		require.Equal(t, 6, n)
		n, err = f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		go leave(2)
		for range 3 {
			require.NoError(t, <-errs)
		}
		for _, d := range at {
			require.GreaterOrEqual(t, d, 9*time.Second)
			require.Less(t, d, 10*time.Second)
		}
	})
}

func TestLeaveDoesNotWaitForTheLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, serve(double))
		done := make(chan error, 2)
		go func() { done <- ws[0].Leave(t.Context()) }()
		go func() { done <- ws[1].Leave(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		n.Kill("host2")
		for range 2 {
			err := <-done
			require.ErrorIs(t, err, ErrPeerLost, "they leave, and say so")
			require.ErrorContains(t, err, "worker2")
		}
		require.Less(t, time.Since(start), 7*time.Second)
	})
}

func TestLeaveGivesUpWithItsContextAndSaysWhatWasOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := sim(t, 2, serve(wait))
		c, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		err := ws[0].Leave(c)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "have not come to leave")
		require.ErrorContains(t, err, "worker1")
	})
	synctest.Test(t, func(t *testing.T) {
		ws := sim(t, 2, serve(wait))
		f := wait.Async(ws[0].Context(t.Context()), "worker1", 0)
		why := errors.New("enough")
		c, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		err := ws[0].Leave(c)
		require.ErrorIs(t, err, why)
		require.ErrorContains(t, err, "calls are outstanding")
		_, err = f.Wait(t.Context())
		require.ErrorIs(t, err, ErrLeft)
	})
}

func TestLeaveAfterCloseIsNoError(t *testing.T) {
	ws := sim(t, 2, nil)
	require.NoError(t, ws[0].Close())
	require.NoError(t, ws[0].Leave(t.Context()))
	require.NoError(t, ws[1].Leave(t.Context()), "the other is gone")
}

func TestCloseEndsWithManyCallsInFlightEverywhere(t *testing.T) {
	ws := sim(t, 3, serve(wait, double))
	var fs []*Future[int]
	for i, w := range ws {
		for k := range 30 {
			fs = append(fs, wait.Async(w.Context(t.Context()), ws[(i+k)%3].Name(), 0))
		}
		wait.Remote(w.Context(t.Context()), ws[(i+1)%3].Name(), 0).Release()
	}
	for _, w := range ws {
		require.NoError(t, w.Close())
	}
	for _, f := range fs {
		_, err := f.Wait(t.Context())
		require.Error(t, err)
	}
}
