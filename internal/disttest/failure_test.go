package disttest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
)

func TestAWorkerKilledInABackwardFailsItAndIsNamed(t *testing.T) {
	for what, victim := range map[string]int{"AtTheEndOfTheChain": 3, "InBetween": 2, "NextToTheRoot": 1} {
		t.Run(what, func(t *testing.T) {
			var goOn chan struct{}
			f := chain(func() error { <-goOn; return nil })
			bubble(t, 4, delays, func(t *testing.T, w *world) {
				goOn = make(chan struct{})
				before := device.Host().Stats().Live
				err := w.ws[0].Pass(t.Context(), func(c context.Context) error {
					loss := autodiff.Sum(must(f.Call(c, "worker1", route{[]string{"worker2", "worker3"}, param(1, 2), ones(2)})))
					failed := make(chan error)
					go func() { failed <- ctx.Backward(c, loss) }()
					time.Sleep(time.Second) // of the bubble: the gradients are at worker3 now
					w.net.Kill(rpctest.Host(victim))
					if victim == 3 { // its goroutine is of this process, and would hold up its Close
						close(goOn)
					}
					return <-failed
				})
				require.ErrorIs(t, err, ctx.ErrPeerLost)
				require.ErrorContains(t, err, name(victim))
				if victim != 3 {
					close(goOn)
				}
				for i, worker := range w.ws {
					if i != victim {
						require.NoError(t, worker.Settle(t.Context()))
					}
				}
				synctest.Wait()
				for i, worker := range w.ws {
					require.True(t, i == victim || len(worker.Passes()) == 0, "%s", worker.Name())
				}
				require.NoError(t, w.ws[victim].Close())
				require.Equal(t, before, device.Host().Stats().Live)
			}, f)
		})
	}
}

func TestALostRootLeavesNothingOnTheOthers(t *testing.T) {
	var goOn chan struct{}
	f := chain(func() error { <-goOn; return nil })
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		goOn = make(chan struct{})
		before := device.Host().Stats().Live
		failed := make(chan error)
		go func() {
			failed <- w.ws[0].Pass(t.Context(), func(c context.Context) error {
				return ctx.Backward(c, autodiff.Sum(must(f.Call(c, "worker1", route{[]string{"worker2", "worker3"}, param(1, 2), ones(2)}))))
			})
		}()
		time.Sleep(time.Second)
		w.net.Kill(rpctest.Host(0))
		require.Error(t, <-failed)
		time.Sleep(10 * time.Second) // until the others have noticed
		close(goOn)
		synctest.Wait()
		for _, worker := range w.ws[1:] {
			require.NoError(t, worker.Settle(t.Context()))
			require.Empty(t, worker.Passes(), worker.Name())
		}
		require.NoError(t, w.ws[0].Close())
		require.Equal(t, before, device.Host().Stats().Live)
	}, f)
}
