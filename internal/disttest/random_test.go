package disttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// The random programs must hold what they are to test.
func TestRandomProgramsCallInEveryWay(t *testing.T) {
	var calls [viaEnds]int
	deepest, self, back := 0, 0, 0
	var walk func(p *program, stack []int)
	walk = func(p *program, stack []int) {
		deepest = max(deepest, len(stack)-1)
		for _, s := range p.Steps {
			if s.Kind != callOut {
				continue
			}
			calls[s.Via]++
			if s.To == stack[len(stack)-1] {
				self++
			} else if slices.Contains(stack, s.To) {
				back++
			}
			walk(s.Body, append(slices.Clone(stack), s.To))
		}
	}
	for i := range uint64(200) {
		r := rand.New(rand.NewPCG(i, 0))
		workers := 2 + r.IntN(3)
		root := r.IntN(workers)
		p, _ := (&writer{r: r, workers: workers, budget: budget}).body(nil, maxDepth)
		walk(p, []int{root})
	}
	t.Logf("calls by way %v, to oneself %d, back %d, depth %d", calls, self, back, deepest)
	require.Greater(t, slices.Min(calls[:]), 50)
	require.Greater(t, min(self, back), 50)
	require.Equal(t, maxDepth, deepest)
}

const (
	budget   = 24 // steps
	maxDepth = 3
)

// randomGraph runs one random program twice, by itself and over workers, and compares.
func randomGraph(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	workers := 2 + r.IntN(3)
	root := r.IntN(workers)
	w := &writer{r: r, workers: workers, budget: budget}
	p, _ := w.body(nil, maxDepth)

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
