package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/parallel"
)

// weighted is a loss whose gradient is f for each element of each parameter.
func weighted(f float64, ps ...*autodiff.Tensor) *autodiff.Tensor {
	loss := autodiff.Sum(autodiff.Scale(ps[0], f))
	for _, p := range ps[1:] {
		loss = autodiff.Add(loss, autodiff.Sum(autodiff.Scale(p, f)))
	}
	return loss
}

// ready has a step of [2 3] elements made on each rank, which goes well.
func (w *world) ready(config parallel.Config) (all []*parallel.Replicas, ps [][]*autodiff.Tensor) {
	w.t.Helper()
	all, ps = make([]*parallel.Replicas, len(w.gs)), make([][]*autodiff.Tensor, len(w.gs))
	w.each(func(r int) (err error) {
		ps[r] = params(2, 3)
		if all[r], err = parallel.Replicate(w.t.Context(), w.gs[r], ps[r], config); err != nil {
			return err
		}
		return wellDone(w.t.Context(), all[r], ps[r])
	})
	return all, ps
}

// wellDone makes a step that is to go well.
func wellDone(c context.Context, r *parallel.Replicas, ps []*autodiff.Tensor) error {
	grads, err := r.Backward(c, weighted(2, ps...), 4)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if got, err := autodiff.Max(grads[p]).Item(); err != nil || got != 2 {
			return fmt.Errorf("the gradient is %v: %w", got, err)
		}
	}
	return nil
}

// buckets are sizes with which both parameters are in one bucket, or each alone.
var buckets = []int{0, 1}

func (w *world) requireWell(all []*parallel.Replicas, ps [][]*autodiff.Tensor) {
	w.t.Helper()
	w.each(func(r int) error { return wellDone(w.t.Context(), all[r], ps[r]) })
}

func TestARankWhoseBackwardFailsIsNamedOnAllAndTheNextStepGoesWell(t *testing.T) {
	for _, limit := range buckets {
		t.Run(fmt.Sprint("buckets of ", limit), func(t *testing.T) {
			w := newWorld(t, 3)
			all, ps := w.ready(parallel.Config{Bucket: limit})
			bad := errors.New("the hook does not like it")
			for p := range 2 {
				remove, err := ps[1][p].OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(bad) })
				require.NoError(t, err)
				for r, err := range w.attempt(func(r int) error { return wellDone(t.Context(), all[r], ps[r]) }) {
					var f *parallel.FailureError
					require.ErrorAs(t, err, &f, "rank %d", r)
					require.Equal(t, 1, f.Rank)
					require.Equal(t, w.ws[1].Name(), f.Worker)
					require.ErrorContains(t, err, bad.Error())
					require.Equal(t, r == 1, errors.Is(err, bad))
				}
				remove()
				w.requireWell(all, ps)
			}
		})
	}
}

func TestANumberOfRowsThatCannotBeIsAnErrorOnAllRanks(t *testing.T) {
	w := newWorld(t, 2)
	all, ps := w.ready(parallel.Config{})
	for _, rows := range []int{-1, 1<<23 + 1} {
		for r, err := range w.attempt(func(r int) error {
			mine := []int{3, rows}[r]
			_, err := all[r].Backward(t.Context(), weighted(1, ps[r]...), mine)
			return err
		}) {
			require.ErrorIs(t, err, parallel.ErrFailed, "rank %d", r)
			require.Equal(t, r == 1, errors.Is(err, parallel.ErrRows))
		}
	}
	for _, err := range w.attempt(func(r int) error { _, err := all[r].Backward(t.Context(), nil, 0); return err }) {
		require.ErrorIs(t, err, parallel.ErrRows)
	}
	for r, err := range w.attempt(func(r int) error { _, err := all[r].Backward(t.Context(), ps[r][0], 1); return err }) {
		require.ErrorIs(t, err, autodiff.ErrNotScalar, "rank %d", r)
	}
	w.requireWell(all, ps)
}

func TestAGradientThatIsNotFiniteIsNamedOnAllRanksWithWhoBroughtIt(t *testing.T) {
	for _, limit := range buckets {
		t.Run(fmt.Sprint("buckets of ", limit), func(t *testing.T) {
			w := newWorld(t, 3)
			all, ps := w.ready(parallel.Config{Bucket: limit, Check: true, Names: []string{"a", "b"}})
			for _, k := range []struct {
				by   []float64 // the gradient of b, by rank
				rank int
			}{
				{[]float64{1, math.NaN(), 1}, 1},
				{[]float64{1, math.Inf(1), math.Inf(-1)}, 1},
				{[]float64{math.Inf(-1), 1, math.NaN()}, 0},
			} {
				for r, err := range w.attempt(func(r int) error {
					_, err := all[r].Backward(t.Context(), autodiff.Add(weighted(1, ps[r][0]), weighted(k.by[r], ps[r][1])), 4)
					return err
				}) {
					var e *parallel.NotFiniteError
					require.ErrorAs(t, err, &e, "rank %d", r)
					require.ErrorIs(t, err, parallel.ErrNotFinite)
					require.Equal(t, parallel.NotFiniteError{Rank: k.rank, Worker: w.ws[k.rank].Name(), Parameter: "b"}, *e)
				}
				w.requireWell(all, ps)
			}
		})
	}
}

func TestALostWorkerIsNamedByBackward(t *testing.T) {
	w := newWorld(t, 3)
	all, ps := w.ready(parallel.Config{Bucket: 1})
	gone := w.ws[2].Name()
	for r, err := range w.attempt(func(r int) error {
		if r == 2 {
			return w.ws[2].Close()
		}
		_, err := all[r].Backward(t.Context(), weighted(1, ps[r]...), 1)
		return err
	}) {
		if r == 2 {
			require.NoError(t, err)
			continue
		}
		var lost *collective.LostError
		require.ErrorAs(t, err, &lost, "rank %d", r)
		require.Equal(t, gone, lost.Worker)
		require.ErrorContains(t, err, ": gradients of ")
	}
}

func TestACancelledContextFailsTheStepOnAllRanksAndTheNextOneGoesWell(t *testing.T) {
	for _, limit := range buckets {
		t.Run(fmt.Sprint("buckets of ", limit), func(t *testing.T) {
			w := newWorld(t, 3)
			all, ps := w.ready(parallel.Config{Bucket: limit})
			over, cancel := context.WithCancel(t.Context())
			cancel()
			for r, err := range w.attempt(func(r int) error {
				c := t.Context()
				if r == 1 {
					c = over
				}
				return wellDone(c, all[r], ps[r])
			}) {
				require.Error(t, err, "rank %d", r)
			}
			w.requireWell(all, ps)
		})
	}
}

func TestWhatWasAccumulatedIsDroppedWithAStepThatFails(t *testing.T) {
	w := newWorld(t, 2)
	all, ps := w.ready(parallel.Config{})
	bad := errors.New("the hook does not like it")
	refuse := func(p int) (remove func()) {
		remove, err := ps[1][p].OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(bad) })
		require.NoError(t, err)
		return remove
	}
	for p := range 2 { // one of them comes after the other
		remove := refuse(p)
		require.ErrorIs(t, all[1].Accumulate(weighted(100, ps[1]...), 1), bad)
		remove()
	}
	require.ErrorIs(t, all[1].Accumulate(weighted(100, ps[1]...), -1), parallel.ErrRows)
	w.requireWell(all, ps) // nothing was kept of what failed

	require.NoError(t, all[1].Accumulate(weighted(100, ps[1]...), 1))
	remove := refuse(0)
	for _, err := range w.attempt(func(r int) error { return wellDone(t.Context(), all[r], ps[r]) }) {
		require.ErrorIs(t, err, parallel.ErrFailed)
	}
	remove()
	w.requireWell(all, ps)
}
