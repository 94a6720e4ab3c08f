package parallel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
)

func TestGradientsThatAreThereAreCombinedAsABackwardsOwn(t *testing.T) {
	w := newWorld(t, 3)
	w.each(func(r int) error {
		ps := params(2, 3, 4)
		table := autodiff.New(make([]float32, 8), 4, 2).RequireGrad()
		other := params(1)[0]
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], append(ps, table), parallel.Config{Check: true})
		if err != nil {
			return err
		}
		for step := range 4 {
			rows := (r + step) % 3 // some have none
			loss := autodiff.Add(weighted(float64(r+1), ps[0], ps[2], other), autodiff.Sum(autodiff.EmbeddingSparse(table, autodiff.New([]int64{int64(r), 3}))))
			own, err := autodiff.BackwardWith(autodiff.Options{RetainGraph: true}, loss)
			if err != nil {
				return err
			}
			got, err := replicas.Combine(t.Context(), own.All(), rows)
			if err != nil {
				return err
			}
			want, err := replicas.Backward(t.Context(), loss, rows)
			if err != nil {
				return err
			}
			if len(got) != 3 || len(want) != 3 || !got[table].IsSparse() {
				return fmt.Errorf("gradients of %d parameters, %d", len(got), len(want))
			}
			for p, g := range got {
				a, err := autodiff.Values[float32](g)
				if err != nil {
					return err
				}
				b, err := autodiff.Values[float32](want[p])
				if err != nil {
					return err
				}
				for i := range a {
					if math.Abs(float64(a[i]-b[i])) > 1e-6 {
						return fmt.Errorf("step %d: %v; expected %v", step, a, b)
					}
				}
			}
		}
		return nil
	})
}

func TestAGradientOfAnotherTypeIsRefusedOnAllRanks(t *testing.T) {
	w := newWorld(t, 2)
	all, ps := w.ready(parallel.Config{})
	for r, err := range w.attempt(func(r int) error {
		bad := map[*autodiff.Tensor]*autodiff.Tensor{ps[r][0]: autodiff.New([]float32{1, 2, 3}[:2+r])}
		_, err := all[r].Combine(t.Context(), bad, 1)
		return err
	}) {
		var f *parallel.FailureError
		require.ErrorAs(t, err, &f, "rank %d", r)
		require.Equal(t, 1, f.Rank)
	}
	w.requireWell(all, ps)
}

func TestAConfigThatCannotBeIsAnErrorOnAllRanksThatSaysAllThatIsWrong(t *testing.T) {
	w := newWorld(t, 2)
	for r, err := range w.attempt(func(r int) error {
		var config parallel.Config
		if r == 1 {
			config = parallel.Config{Bucket: -1, Wire: 9, LowRank: parallel.LowRank{Rank: -2}}
		}
		_, err := parallel.Replicate(t.Context(), w.gs[r], params(1), config)
		return err
	}) {
		require.ErrorIs(t, err, parallel.ErrFailed, "rank %d", r)
		for _, text := range []string{"Bucket -1", "Wire 9", "Rank -2"} {
			require.ErrorContains(t, err, text)
		}
	}
	for _, err := range w.attempt(func(r int) error {
		_, err := parallel.Replicate(t.Context(), w.gs[r], params(1), parallel.Config{Bucket: math.MaxInt})
		return err
	}) {
		require.ErrorIs(t, err, parallel.ErrConfig)
		require.ErrorIs(t, err, device.ErrMemory, "a bucket is larger than memory")
	}
	for _, err := range w.attempt(func(r int) error {
		_, err := parallel.Replicate(t.Context(), w.gs[r], params(1), parallel.Config{Wire: parallel.Wire(r)})
		return err
	}) {
		require.ErrorIs(t, err, parallel.ErrParameters)
		require.ErrorContains(t, err, `"Config.Wire: 0" where rank 1, worker1, has "Config.Wire: 1"`)
	}
}
