package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
)

func TestRanksTogetherLoseWhatOneProcessDoes(t *testing.T) {
	rows := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 30}
	want := alone(t, 100, func(step uint64) []int { return rows.Of(step, 0, 1) }).losses
	for size := 1; size <= 4; size++ {
		// All in one bucket, each alone, and some of both: once for longer.
		for _, limit := range []int{0, 1, 1 << 10} {
			steps := 12
			if size == 3 && limit > 1 {
				steps = noted * len(want)
			}
			t.Run(fmt.Sprint(size, " ranks, ", limit), func(t *testing.T) {
				config := parallel.Config{Bucket: limit, Check: true}
				w := newWorld(t, size)
				w.requireTogether(config, want[:steps/noted], func(step uint64, rank int) []int {
					return rows.Of(step, rank, size)
				})
			})
		}
	}
}

func TestRanksMayHaveDifferentNumbersOfRowsAndNone(t *testing.T) {
	rowsAt := func(step uint64, rank int) []int {
		src := rand.New(rand.NewPCG(step, uint64(rank)))
		rows := make([]int, src.IntN(12))
		if rank == int(step)%3 || rank == int(step/3)%3 {
			rows = nil
		}
		if step%9 == 8 || len(rows) == 0 && rank == int(step+1)%3 {
			rows = make([]int, 7)
		}
		for i := range rows {
			rows[i] = src.IntN(rowsOfData)
		}
		return rows
	}
	want := alone(t, 40, rowsOfAll(3, rowsAt)).losses
	newWorld(t, 3).requireTogether(parallel.Config{Bucket: 1 << 10}, want, rowsAt)
}

func TestAParameterThatNoRankUsedHasNoGradientAndOneThatSomeUsedHasItsMean(t *testing.T) {
	for _, limit := range []int{0, 1} {
		t.Run(fmt.Sprint("buckets of ", limit), func(t *testing.T) {
			w := newWorld(t, 3)
			w.each(func(r int) error { return w.useSome(r, limit) })
		})
	}
}

// useSome has all ranks use parameters by chance, step by step.
func (w *world) useSome(r, limit int) error {
	src := rand.New(rand.NewPCG(9, 9)) // the same on all ranks
	mine := []*autodiff.Tensor{
		autodiff.New([]float64{2}).RequireGrad(), autodiff.New([]float32{3}).RequireGrad(),
		autodiff.New([]float32{4, 5}).RequireGrad(),
	}
	replicas, err := parallel.Replicate(
		w.t.Context(), w.gs[r], mine, parallel.Config{Bucket: limit},
	)
	if err != nil {
		return err
	}
	for step := range 30 {
		use := make([][3]bool, len(w.gs)) // by rank and parameter
		for rank := range use {
			for p := range use[rank] {
				use[rank][p] = src.IntN(3) == 0
			}
		}
		if step == 0 {
			use[2][1] = true
		}
		if !slices.ContainsFunc(use, func(u [3]bool) bool { return u != [3]bool{} }) {
			continue
		}
		if err := checkUses(w.t.Context(), replicas, mine, use, r); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// checkUses has rank r use the parameters that it is to use, with r+1 rows.
func checkUses(
	c context.Context, replicas *parallel.Replicas, mine []*autodiff.Tensor, use [][3]bool, r int,
) error {
	rows, total := 0, 0
	var loss *autodiff.Tensor
	for rank := range use {
		if use[rank] == [3]bool{} {
			continue
		}
		total += rank + 1
		if rank == r {
			rows = r + 1
		}
	}
	var losses []*autodiff.Tensor
	for p, used := range use[r] {
		if used {
			sum := autodiff.Sum(autodiff.Scale(mine[p], float64(r+1)))
			losses = append(losses, autodiff.Cast(sum, device.Float64))
		}
	}
	for _, l := range losses {
		if loss == nil {
			loss = l
			continue
		}
		loss = autodiff.Add(loss, l)
	}
	grads, err := replicas.Backward(c, loss, rows)
	if err != nil {
		return err
	}
	for p := range mine {
		want, any := 0.0, false
		for rank := range use {
			if use[rank][p] {
				want, any = want+float64((rank+1)*(rank+1))/float64(total), true
			}
		}
		grad, has := grads[mine[p]]
		if has != any {
			return fmt.Errorf("parameter %d has a gradient: %t", p, has)
		}
		if !has {
			continue
		}
		got, err := autodiff.Max(grad).Item()
		if err != nil || math.Abs(got-want) > 1e-6 {
			return fmt.Errorf("parameter %d: %v; expected %v (%w)", p, got, want, err)
		}
	}
	return nil
}

func TestAccumulatedRowsCountAsThoseOfOneStep(t *testing.T) {
	w := newWorld(t, 2)
	rows := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 24}
	want := alone(t, 20, func(step uint64) []int { return rows.Of(step, 0, 1) })
	w.each(func(r int) error {
		model := newModel(1)
		replicas, err := parallel.Replicate(
			t.Context(), w.gs[r], model.Params(), parallel.Config{Bucket: 1 << 10},
		)
		if err != nil {
			return err
		}
		opt, err := optim.New(rule, model.Params()...)
		if err != nil {
			return err
		}
		var k trained
		for step := range uint64(20) {
			mine := rows.Of(step, r, 2)
			for cut := range r + 1 { // rank 1 in three parts, rank 0 in two
				part := mine[:3+cut]
				mine = mine[3+cut:]
				owner := autodiff.NewArena("part")
				loss, err := lossOf(model, owner, part)
				if err == nil {
					err = replicas.Accumulate(loss, len(part))
				}
				owner.Free()
				if err != nil {
					return err
				}
			}
			if r == 1 && step%2 == 0 { // nothing is left for the step itself
				owner := autodiff.NewArena("part")
				loss, err := lossOf(model, owner, mine)
				if err == nil {
					err = replicas.Accumulate(loss, len(mine))
				}
				owner.Free()
				if err != nil {
					return err
				}
				mine = nil
			}
			if err := oneStep(t.Context(), replicas, opt, model, mine); err != nil {
				return err
			}
			if err := k.note(step, model); err != nil {
				return err
			}
		}
		for i, v := range k.losses {
			if math.Abs(v-want.losses[i]) > 1e-6 {
				return fmt.Errorf("%v; expected %v", k.losses, want.losses)
			}
		}
		return nil
	})
}

func TestAllRanksAreToldWhichParameterDiffers(t *testing.T) {
	w := newWorld(t, 3)
	for what, k := range map[string]struct {
		mine func(r int) []*autodiff.Tensor
		here string
	}{
		"shape": {func(r int) []*autodiff.Tensor { return params(2, 3+r/2) }, "b: float32(3)"},
		"none": {func(r int) []*autodiff.Tensor {
			return params(2, 3, 4)[:3-r/2]
		}, "c: float32(4)"},
		"dtype": {func(r int) []*autodiff.Tensor {
			if r == 2 {
				return []*autodiff.Tensor{autodiff.New([]float64{1}).RequireGrad()}
			}
			return params(1)
		}, "a: float32(1)"},
	} {
		for r, err := range w.attempt(func(r int) error {
			mine := k.mine(r)
			_, err := parallel.Replicate(
				t.Context(), w.gs[r], mine,
				parallel.Config{Names: []string{"a", "b", "c"}[:len(mine)]},
			)
			return err
		}) {
			var d *parallel.DifferenceError
			require.ErrorAs(t, err, &d, "%s on rank %d", what, r)
			require.ErrorIs(t, err, parallel.ErrParameters)
			require.Equal(t, 2, d.Rank)
			require.Equal(t, k.here, d.Here)
			require.Equal(t, []string{w.ws[0].Name(), w.ws[2].Name()}, []string{d.Worker, d.Other})
		}
	}
	for r, err := range w.attempt(func(r int) error {
		_, err := parallel.Replicate(
			t.Context(), w.gs[r], params(1), parallel.Config{Bucket: 1 + r/2},
		)
		return err
	}) {
		require.ErrorContains(t, err, `rank 0, worker0, has "Config.Bucket: 1" where rank 2, worker2, has "Config.Bucket: 2"`, "rank %d", r)
	}
	for r, err := range w.attempt(func(r int) error {
		mine := params(1, 2)
		if r == 1 {
			mine[1] = mine[0]
		}
		_, err := parallel.Replicate(t.Context(), w.gs[r], mine, parallel.Config{})
		return err
	}) {
		var f *parallel.FailureError
		require.ErrorAs(t, err, &f, "rank %d", r)
		require.Equal(t, 1, f.Rank)
		require.Equal(t, r == 1, errors.Is(err, parallel.ErrParameters))
	}
}
