package rpc

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
)

func limited(running, queued int, fns ...Function) func(int, *Config) {
	return func(_ int, cfg *Config) {
		cfg.Functions, cfg.MaxRunning, cfg.MaxQueued = fns, running, queued
	}
}

func TestCallsBeyondTheLimitsAreRefusedAtOnceAndTheOthersRunInTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		slow := gated(gate)
		ws := sim(t, 2, limited(2, 3, slow))
		c := ws[0].Context(t.Context())
		var fs []*Future[int]
		for range 5 {
			fs = append(fs, slow.Async(c, "worker1", 0))
		}
		synctest.Wait()
		running, queued := ws[1].serving.gate.Load()
		require.Equal(t, []int{2, 3}, []int{running, queued})
		start := time.Now()
		_, err := slow.Call(c, "worker1", 0)
		require.ErrorIs(t, err, ErrBusy)
		require.ErrorContains(t, err, `worker1 has 2 calls running and 3 waiting, as many as it may; "gated" was refused`)
		require.ErrorIs(t, slow.Remote(c, "worker1", 0).Ready(c), ErrBusy)
		require.Zero(t, time.Since(start))
		close(gate)
		for _, f := range fs {
			n, err := f.Wait(c)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		synctest.Wait()
		running, queued = ws[1].serving.gate.Load()
		require.Equal(t, []int{0, 0}, []int{running, queued})
		require.Zero(t, ws[1].Owned())
	})
}

func TestOnePeersFloodDoesNotStarveAnothersCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nap := Define("nap", func(_ context.Context, d time.Duration) (int, error) { time.Sleep(d); return 0, nil })
		ws := sim(t, 3, limited(1, 20, nap))
		for range 100 {
			nap.Async(ws[0].Context(t.Context()), "worker2", time.Second)
		}
		synctest.Wait()
		start := time.Now()
		for range 3 {
			_, err := nap.Call(ws[1].Context(t.Context()), "worker2", time.Second)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, time.Since(start), 9*time.Second, "each waits for the call that runs, and for one more of the other's")
	})
}

func TestACallThatIsCancelledWhileItWaitsGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		slow := gated(gate)
		ws := sim(t, 2, limited(1, 2, slow))
		c := ws[0].Context(t.Context())
		first := slow.Async(c, "worker1", 0)
		synctest.Wait()
		cancelled, cancel := context.WithCancel(c)
		second := slow.Async(cancelled, "worker1", 0)
		third := slow.Async(WithTimeout(c, time.Second), "worker1", 0)
		synctest.Wait()
		cancel()
		_, err := second.Wait(c)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		_, queued := ws[1].serving.gate.Load()
		require.Equal(t, 1, queued)
		_, err = third.Wait(c)
		require.ErrorIs(t, err, ErrTimeout)
		synctest.Wait()
		_, queued = ws[1].serving.gate.Load()
		require.Zero(t, queued)
		close(gate)
		_, err = first.Wait(c)
		require.NoError(t, err)
	})
}

var twos = Define("twos", func(context.Context, int) (*autodiff.Tensor, error) {
	return autodiff.New([]float32{2, 2}).RequireGrad(), nil
})

func TestControlMessagesAndFetchesNeverWaitBehindFunctions(t *testing.T) {
	gate, running := make(chan struct{}), make(chan struct{})
	slow := Define("slow", func(c context.Context, _ int) (int, error) {
		close(running)
		<-gate
		return 1, nil
	})
	ws := sim(t, 2, limited(1, 1, slow, addFn, twos))
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		a := autodiff.Ones(device.Float32, 2).RequireGrad()
		sum, err := addFn.Call(c, "worker1", pair{a, a})
		require.NoError(t, err)
		kept := twos.Remote(c, "worker1", 3)
		require.NoError(t, kept.Ready(c))
		f := slow.Async(ws[0].Context(t.Context()), "worker1", 0)
		<-running
		got, err := kept.ToHere(c)
		require.NoError(t, err)
		require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Mul(sum, got))), "gradients")
		kept.Release()
		owns(t, ws[1], 0)
		close(gate)
		_, err = f.Wait(c)
		return err
	}))
	require.NoError(t, ws[0].Settle(t.Context()), "clean-up")
}

func TestCallsThatWaitForNestedCallsBackNeedPlacesAndAsyncOnesDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := Define("ask", func(c context.Context, to string) (int, error) { return double.Call(c, to, 2) })
		later := DefineAsync("later", func(c context.Context, to string) (*Future[int], error) { return double.Async(c, to, 2), nil })
		ws := sim(t, 2, limited(1, 10, ask, later, double))
		c := ws[0].Context(t.Context())
		_, err := ask.Call(WithTimeout(c, 5*time.Second), "worker1", "worker1")
		require.ErrorIs(t, err, ErrTimeout, "the only place is taken by who waits for it")
		var fs []*Future[int]
		for i := range 8 {
			fs = append(fs, later.Async(c, "worker1", fmt.Sprintf("worker%d", i%2)))
		}
		got, err := WaitAll(c, fs...)
		require.NoError(t, err)
		require.Equal(t, []int{4, 4, 4, 4, 4, 4, 4, 4}, got)
	})
}
