package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/parallel"
)

func TestGradientsInFewerBytesLeaveTheSameParametersOnAllRanksAndLearnAlike(t *testing.T) {
	for name, config := range map[string]parallel.Config{
		"bfloat16":      {Wire: parallel.BFloat16},
		"bfloat16 each": {Wire: parallel.BFloat16, Bucket: 1},
		"int8":          {Wire: parallel.Int8, Bucket: 1 << 10},
		"rank 1":        {LowRank: parallel.LowRank{Rank: 1, From: 3}},
		"rank 2, int8":  {LowRank: parallel.LowRank{Rank: 2}, Wire: parallel.Int8},
	} {
		for _, size := range []int{1, 3} {
			if size == 1 && name != "rank 2, int8" {
				continue // there nothing travels, in whatever way
			}
			t.Run(fmt.Sprint(name, ", ", size, " ranks"), func(t *testing.T) {
				const steps = 12
				rowsAt := func(step uint64, rank int) []int { // uneven, and sometimes none
					src := rand.New(rand.NewPCG(step, uint64(rank)))
					rows := make([]int, (int(step)+rank)%3*10+rank)
					for i := range rows {
						rows[i] = src.IntN(rowsOfData)
					}
					if len(rows) == 0 && size == 1 {
						return []int{1}
					}
					return rows
				}
				got := newWorld(t, size).train(config, steps, rowsAt)
				want := alone(t, steps, rowsOfAll(size, rowsAt)).losses
				require.InDelta(t, want[len(want)-1], got[len(want)-1], 0.1)
				if size > 1 {
					require.NotEqual(t, want, got)
				}
			})
		}
	}
}

// odd is what bfloat16 has not.
const odd = 1 + 1./1024

func TestWhatRoundingTakesComesLaterButNotAfterAStepThatFailed(t *testing.T) {
	for _, limit := range buckets {
		t.Run(fmt.Sprint("buckets of ", limit), func(t *testing.T) {
			w := newWorld(t, 2)
			all, ps := w.ready(parallel.Config{Wire: parallel.BFloat16, Bucket: limit})
			bad := errors.New("the hook does not like it")
			gradient := func(r int) (float64, error) {
				grads, err := all[r].Backward(t.Context(), weighted(odd, ps[r]...), 4)
				if err != nil {
					return 0, err
				}
				return autodiff.Max(grads[ps[r][0]]).Item()
			}
			course := func(r int) ([]float64, error) {
				var got []float64
				for range 6 {
					v, err := gradient(r)
					if err != nil {
						return nil, err
					}
					got = append(got, v)
				}
				return got, nil
			}
			var courses [2][2][]float64
			for n := range courses {
				w.each(func(r int) (err error) { courses[n][r], err = course(r); return err })
				remove, err := ps[1][1].OnGrad(
					func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(bad) },
				)
				require.NoError(t, err)
				for _, err := range w.attempt(func(r int) error {
					_, err := gradient(r)
					return err
				}) {
					require.ErrorIs(t, err, parallel.ErrFailed)
				}
				remove()
			}
			require.Equal(t, courses[0][0], courses[0][1], "all ranks have the same")
			require.Equal(t, courses[0], courses[1], "a step that fails leaves nothing behind")
			sum := 0.0
			for _, v := range courses[0][0] {
				sum += v
			}
			require.InDelta(t, 6*odd, sum, 2./128)
			require.NotEqual(t, odd, courses[0][0][0])
		})
	}
}

func TestAGroupOfOneFailsAsALargerOne(t *testing.T) {
	w := newWorld(t, 1)
	all, ps := w.ready(parallel.Config{Check: true, Names: []string{"a", "b"}})
	c := t.Context()
	_, err := all[0].Backward(c, weighted(math.NaN(), ps[0]...), 1)
	var bad *parallel.NotFiniteError
	require.ErrorAs(t, err, &bad)
	_, err = all[0].Backward(c, weighted(1, ps[0]...), -1)
	require.ErrorIs(t, err, parallel.ErrRows)
	require.ErrorIs(t, err, parallel.ErrFailed)
	_, err = all[0].Backward(c, nil, 0)
	require.ErrorIs(t, err, parallel.ErrRows)
	_, err = all[0].Combine(c, nil, 0)
	require.ErrorIs(t, err, parallel.ErrRows)
	require.NoError(t, all[0].Accumulate(weighted(2, ps[0][0]), 3))
	grads, err := all[0].Backward(c, weighted(4, ps[0][1]), 1)
	require.NoError(t, err)
	for i, want := range []float64{1.5, 1} {
		v, err := autodiff.Max(grads[ps[0][i]]).Item()
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
	w.requireWell(all, ps)
}

func TestAWorkerThatIsLostWhileBucketsAreUnderWayIsNamedAndNobodyWaits(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ws := rpctest.World(t, rpctest.Net(), 3)
			w := grouped(t, ws)
			gone := ws[2].Name()
			for r, err := range w.attempt(func(r int) error {
				ps := params(300, 200, 100, 300, 200, 100, 300, 200, 100)
				config := parallel.Config{
					Bucket: 256, LowRank: parallel.LowRank{Rank: 1}, Wire: parallel.Wire(seed % 3),
				}
				replicas, err := parallel.Replicate(t.Context(), w.gs[r], ps, config)
				if err != nil {
					return err
				}
				if r == 2 {
					left := int(seed)
					if _, err := ps[left%9].OnAccumulated(func(_, _ *autodiff.Tensor) error {
						if left--; left < 0 {
							_ = ws[2].Close()
						}
						return nil
					}); err != nil {
						return err
					}
				}
				for err == nil {
					_, err = replicas.Backward(t.Context(), weighted(1, ps...), 1)
				}
				return err
			}) {
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				if r != 2 {
					var lost *collective.LostError
					require.ErrorAs(t, err, &lost, "rank %d", r)
					require.Equal(t, gone, lost.Worker)
				}
			}
		})
	}
}
