package ctx

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/leak"
)

// Backwards begin while others look at the pass and enter it: no two of them may take their locks
// in opposite orders.
func TestAPassIsEnteredAndListedWhileBackwardsBegin(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	loss := autodiff.Sum(param(1, 2))
	over, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for over.Err() == nil {
				w.cts[0].Passes()
				_, _, done, err := w.cts[0].Enter(context.Background(), p.ID(), 1, nil)
				require.NoError(t, err)
				done()
			}
		})
	}
	for range 2000 {
		require.NoError(t, BackwardWith(c, retain, loss))
	}
	stop()
	wg.Wait()
}

func TestAWorkerThatCannotReachTheRootTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		w := newWorld(t, 2)
		c, p := w.open(t, 0)
		defer p.Leave()
		z := param(3, 4)
		loss := autodiff.Sum(w.call1(t, c, 1, func(in []*autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(in[0], z) }, param(1, 2)))
		w.hold(func(_ context.Context, what string, from, _ WorkerID) error {
			if what == "gradients" && from == 1 {
				return errors.New("no way")
			}
			return nil
		})
		c, cancel := context.WithTimeout(c, time.Minute)
		defer cancel()
		start := time.Now()
		err := BackwardWith(c, retain, loss)
		var f *Failure
		require.ErrorAs(t, err, &f)
		require.Equal(t, "worker1", f.Worker)
		require.Contains(t, f.Cause, "no way")
		require.Zero(t, time.Since(start))
		require.NoError(t, w.cts[1].Settle(c))
		have, err := w.part(t, p, 1).Gradients()
		require.Empty(t, have, "what it found is taken back")
		if err != nil { // its part had ended well
			require.ErrorAs(t, err, &f)
			require.Contains(t, f.Cause, "no way")
		}
	})
}

func TestAWorkerThatCannotBeginTellsWhy(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 3)
	c, p := w.open(t, 0)
	defer p.Leave()
	y := w.call(t, c, 1, func(c context.Context, in []*autodiff.Tensor) []*autodiff.Tensor {
		return w.call(t, c, 2, use, in...)
	}, param(1, 2))[0]
	q := w.part(t, p, 2)
	for _, s := range q.SendFunctions() {
		q.DropSend(s.Message)
	}
	err := BackwardWith(c, retain, autodiff.Sum(y))
	var f *Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, "worker2", f.Worker)
	require.ErrorIs(t, err, autodiff.ErrGraphFreed)
	require.NoError(t, w.cts[0].Settle(c))
	require.NoError(t, w.cts[2].Settle(c))
	require.Zero(t, w.part(t, p, 1).info().Backwards)
}

func TestADeadlineEndsABackwardThatIsBusy(t *testing.T) {
	leak.Check(t)
	w := newWorld(t, 1)
	c, p := w.open(t, 0)
	defer p.Leave()
	x := param(1, 2)
	ended, cancel := context.WithCancel(c)
	y := autodiff.Tanh(x)
	remove, err := y.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { cancel(); return nil })
	require.NoError(t, err)
	defer remove()
	loss := autodiff.Sum(autodiff.Scale(y, math.E))
	require.ErrorIs(t, BackwardWith(ended, retain, loss), context.Canceled)
	require.ErrorIs(t, Backward(ended, loss), context.Canceled, "before it begins")
	requireGradients(t, p, nil)
}
