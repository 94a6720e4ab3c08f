package ctx

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/leak"
)

func refuse(what ...string) func(context.Context, string, WorkerID, WorkerID) error {
	return func(_ context.Context, m string, _, _ WorkerID) error {
		for _, w := range what {
			if w == m {
				return errors.New("refused")
			}
		}
		return nil
	}
}

func use(_ context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
	return tensors(autodiff.Tanh(in[0]))
}

func TestACleanUpThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		c, p := w.open(t, 0)
		w.call(t, c, 1, use, param(1))
		tries := 0
		w.hold(func(_ context.Context, what string, _, _ WorkerID) error {
			if tries++; tries <= 3 {
				return errors.New("simulated")
			}
			return nil
		})
		start := time.Now()
		p.Leave()
		w.settle(t)
		require.Equal(t, 7*firstPause, time.Since(start))
		require.Equal(t, 4, tries)
	})
}

func TestAPassThatIsLeftWithoutAWordIsFreedWhenItsOpenerIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 3)
		c, p := w.open(t, 0)
		other, kept := w.open(t, 0)
		w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor { return w.call(t, c, 2, use, in...) }, param(1))
		w.call(t, other, 1, use, param(1))
		w.hold(refuse("clean-up", "renew"))
		p.Leave()
		require.NoError(t, w.cts[0].Settle(t.Context()))
		require.Len(t, w.cts[1].Passes(), 2, "nobody could tell it")
		w.hold(nil)
		time.Sleep(defaultLease / 3)
		synctest.Wait()
		require.Len(t, w.cts[1].Passes(), 1)
		require.Empty(t, w.cts[2].Passes())
		_, _, _, err := w.cts[1].Enter(t.Context(), p.ID(), 2, nil)
		require.ErrorIs(t, err, ErrUnknownPass)
		require.ErrorIs(t, err, ErrLease, "it says why")
		time.Sleep(10 * defaultLease)
		require.Len(t, w.cts[1].Passes(), 1, "a pass that its opener has stays")
		kept.Leave()
		w.settle(t)
	})
}

func TestAPartWhoseOpenerCannotBeAskedIsFreedWhenItsLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		c, p := w.open(t, 0)
		defer p.Leave()
		w.call(t, c, 1, use, param(1))
		w.hold(func(c context.Context, what string, _, _ WorkerID) error {
			if what == "renew" {
				<-c.Done()
				return c.Err()
			}
			return nil
		})
		start := time.Now()
		for len(w.cts[1].Passes()) > 0 {
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, time.Since(start), 2*defaultLease)
		require.Greater(t, time.Since(start), defaultLease-time.Second)
	})
}

func TestACallToAPartThatALostWorkerTookAlongSaysWhose(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor { return w.call(t, c, 2, use, in...) }, param(1))
	w.cts[2].PeerLost(1, errors.New("no answer"))
	_, _, _, err := w.cts[2].Enter(t.Context(), p.ID(), 0, nil)
	require.ErrorIs(t, err, ErrUnknownPass)
	require.ErrorIs(t, err, ErrPeerLost)
	require.ErrorContains(t, err, "worker1: no answer")
}
