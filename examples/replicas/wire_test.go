package main

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
)

// course is what a training on digits makes.
type course struct {
	losses []float64 // of the test digits, after each step
	right  float64   // of them, in the mean over the last 100 steps
	bytes  int       // of a rank's sums in the last step
}

// trained is a course of two ranks, the same on both.
func trained(t *testing.T, name string, config parallel.Config, rule optim.Rule, data *table.Data, hidden ...int) (k course) {
	t.Helper()
	require.True(t, t.Run(name, func(t *testing.T) { k = courses(t, config, rule, data, hidden...)[0] }))
	return k
}

func courses(t *testing.T, config parallel.Config, rule optim.Rule, data *table.Data, hidden ...int) (all [2]course) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	var errs [2]error
	var both sync.WaitGroup
	for r, w := range ws {
		both.Go(func() {
			g, err := collective.Open(t.Context(), w, "digits")
			if err == nil {
				all[r], err = courseOf(t, g, config, rule, data, hidden...)
				err = errors.Join(err, g.Barrier(t.Context()), g.Close())
			}
			errs[r] = err
		})
	}
	both.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	require.Equal(t, all[0].losses, all[1].losses)
	return all
}

func courseOf(t *testing.T, g *collective.Group, config parallel.Config, rule optim.Rule, data *table.Data, hidden ...int) (k course, err error) {
	sizes := append(append([]int{data.Features}, hidden...), data.Classes)
	model := nn.NewMLP(rand.New(rand.NewPCG(1, 1)), autodiff.ReLU, sizes...)
	replicas, err := parallel.Replicate(t.Context(), g, model.Params(), config)
	if err != nil {
		return k, err
	}
	opt, err := optim.New(rule, model.Params()...)
	if err != nil {
		return k, err
	}
	rows := parallel.Rows{Seed: 1, N: len(data.Train.Y), Batch: batch}
	tx, ty := data.Test.All()
	var before int
	for step := range uint64(steps) {
		mine := rows.Of(step, g.Rank(), g.Size())
		before = len(g.Trace())
		x, y := data.Train.Batch(mine)
		grads, err := replicas.Backward(t.Context(), autodiff.CrossEntropy(model.Forward(x), y), len(mine))
		if err != nil {
			return k, err
		}
		k.bytes = 0
		for _, e := range g.Trace()[before:] {
			if strings.HasPrefix(e.Call, "AllReduce") {
				k.bytes += e.Bytes
			}
		}
		if err := opt.Step(grads); err != nil {
			return k, err
		}
		loss, err := autodiff.CrossEntropy(model.Forward(tx), ty).Item()
		if err != nil {
			return k, err
		}
		k.losses = append(k.losses, loss)
		if step >= steps-100 {
			right, err := nn.Accuracy(model.Forward(tx), ty)
			if err != nil {
				return k, err
			}
			k.right += right / 100
		}
	}
	return k, nil
}

// plainly has no momentum, which makes more of what rounding does.
var plainly = optim.SGD{LR: 0.1}

func TestGradientsInHalfTheBytesLoseWhatExactOnesDo(t *testing.T) {
	data, err := table.Load("", 1)
	require.NoError(t, err)
	exact := trained(t, "exact", parallel.Config{Bucket: 4 << 10}, plainly, data, 64)
	half := trained(t, "bfloat16", parallel.Config{Bucket: 4 << 10, Wire: parallel.BFloat16}, plainly, data, 64)
	require.InDeltaSlice(t, exact.losses, half.losses, 1e-3)
	require.InDelta(t, float64(exact.bytes)/2, float64(half.bytes), 256, "but for what tells of the step")
	require.Greater(t, exact.right, 0.9)
}

func TestMatricesOfLowRankLearnAsExactOnes(t *testing.T) {
	data, err := table.Load("", 1)
	require.NoError(t, err)
	sizes, rule := []int{160, 160}, optim.SGD{LR: 0.1, Momentum: 0.9}
	exact := trained(t, "exact", parallel.Config{}, rule, data, sizes...)
	low := trained(t, "rank 2", parallel.Config{LowRank: parallel.LowRank{Rank: 2, From: 10}}, rule, data, sizes...)
	require.GreaterOrEqual(t, low.right, exact.right-0.005)
	require.Equal(t, exact.losses[:10], low.losses[:10], "the first steps are exact")
	require.NotEqual(t, exact.losses[299], low.losses[299])
	large := 4 * (64*160 + 160*160)
	require.LessOrEqual(t, low.bytes-(exact.bytes-large), large/20)
}
