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
	for i := range soak.Cases(100) {
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

// randomCase is a random program, what it gives on one worker, and a machine to run it on many.
type randomCase struct {
	seed    uint64
	r       *rand.Rand
	workers int
	root    int
	program *program
	mode    ctx.Mode
	net     simnet.Config // on which messages are delayed and overtake each other
	alone   *machine
	want    *autodiff.Gradients
	*machine
}

// newCase writes a program for 2–8 workers. FAST mode needs one whose results are used, on a few
// workers.
func newCase(t *testing.T, seed uint64, mode ctx.Mode) *randomCase {
	k := &randomCase{seed: seed, r: rand.New(rand.NewPCG(seed, 0)), mode: mode}
	k.workers = 2 + k.r.IntN(7)
	if mode == ctx.Fast {
		k.workers = 2 + k.r.IntN(3)
	}
	k.net = simnet.Config{Seed: seed, MaxDelay: time.Duration(1+seed%20) * time.Millisecond}
	k.root = k.r.IntN(k.workers)
	w := &writer{r: k.r, workers: k.workers, budget: budget, waste: mode == ctx.Smart}
	k.program, _ = w.body(nil, maxDepth)
	k.alone = local(seed, k.workers)
	outs, err := k.alone.run(t.Context(), k.root, k.program, nil)
	require.NoError(t, err)
	k.want, err = autodiff.Backward(roots(outs)...)
	require.NoError(t, err)
	k.machine = distributed(seed, k.workers)
	return k
}

// pass runs the program and its backward in a pass.
func (k *randomCase) pass(c context.Context) error {
	c, cancel := context.WithTimeout(c, time.Minute)
	defer cancel()
	outs, err := k.run(c, k.root, k.program, nil)
	if err != nil {
		return err
	}
	return ctx.BackwardWith(c, ctx.Options{Mode: k.mode}, roots(outs)...)
}

// randomGraph runs one random program twice, by itself and over workers, and compares.
func randomGraph(t *testing.T, seed uint64) {
	k := newCase(t, seed, ctx.Mode(seed%4/3)) // a quarter in FAST mode
	bubble(t, k.workers, k.net, func(t *testing.T, w *world) {
		w.pass(t, k.root, func(c context.Context) {
			require.NoError(t, k.pass(c))
			k.requireSame(t, k.alone, k.want, func(at int) *ctx.Pass { return w.part(t, c, at) })
		})
	}, k.eval)
}

// roots are scalars of all results: one, and another of all further ones.
func roots(outs []*autodiff.Tensor) []*autodiff.Tensor {
	all := []*autodiff.Tensor{autodiff.Sum(outs[len(outs)-1])}
	for i, o := range outs[:len(outs)-1] {
		if m := autodiff.Mean(autodiff.Mul(o, o)); i == 0 && m.RequiresGrad() {
			all = append(all, m)
		} else {
			all[0] = autodiff.Add(all[0], m)
		}
	}
	return all
}
