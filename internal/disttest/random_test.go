package disttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/simnet"
)

func TestRandomDistributedGraphsHaveTheGradientsOfOneProcess(t *testing.T) {
	for i := range soak.Cases(200) {
		seed := uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { randomGraph(t, seed) })
	}
}

// randomGraph runs one random program twice, by itself and over workers, and compares.
func randomGraph(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	workers := 2 + r.IntN(3)
	root := r.IntN(workers)
	w := &writer{r: r, workers: workers, budget: 14}
	p, _ := w.body(nil, 3)

	alone := local(seed, workers)
	outs, err := alone.run(t.Context(), root, p, nil)
	require.NoError(t, err)
	want, err := autodiff.Backward(loss(outs))
	require.NoError(t, err)

	m := distributed(seed, workers)
	cfg := simnet.Config{Seed: seed, MaxDelay: time.Duration(1+r.IntN(20)) * time.Millisecond}
	bubble(t, workers, cfg, func(t *testing.T, w *world) {
		w.pass(t, root, func(c context.Context) {
			c, cancel := context.WithTimeout(c, time.Minute)
			defer cancel()
			outs, err := m.run(c, root, p, nil)
			require.NoError(t, err)
			require.NoError(t, ctx.Backward(c, loss(outs)))
			m.requireSame(t, alone, want, func(at int) *ctx.Pass { return w.part(t, c, at) })
		})
	}, m.eval)
}

// loss is a scalar of all results.
func loss(outs []*autodiff.Tensor) *autodiff.Tensor {
	sum := autodiff.Sum(outs[0])
	for _, o := range outs[1:] {
		sum = autodiff.Add(sum, autodiff.Mean(autodiff.Mul(o, o)))
	}
	return sum
}
