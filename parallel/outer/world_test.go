package outer

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
)

// shapes are those of the parameters in most tests, of different sizes.
var shapes = [][]int{{7, 3}, {5}, {1}, {300}, {2, 2}}

// newParams gives parameters whose values follow from the seed.
func newParams(seed uint64) (all []*autodiff.Tensor) {
	r := rand.New(rand.NewPCG(seed, 9))
	for _, shape := range shapes {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		all = append(all, autodiff.New(x, shape...).RequireGrad())
	}
	return all
}

// drift is what a worker's inner step adds to an element of a parameter: up to 0.2, by splitmix64.
func drift(worker, step, param, i int) float64 {
	x := uint64(worker+1)<<48 + uint64(step+1)<<32 + uint64(param+1)<<16 + uint64(i)
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64(int64(x^x>>31)) / (1 << 63) / 5
}

// near says that two arrays are the same but for rounding.
func near(t *testing.T, want []float64, got []float32, msg string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), append([]any{msg}, args...)...)
	for i, v := range want {
		if d := v - float64(got[i]); !(d < 1e-4 && d > -1e-4) {
			args = append([]any{i, got[i], v}, args...)
			require.Failf(t, "not near", "element %d is %v; expected %v: "+msg, args...)
		}
	}
}

// inner makes a worker's inner step.
func inner(params []*autodiff.Tensor, worker, step int) error {
	values := make([]*autodiff.Tensor, len(params))
	for k, p := range params {
		x, err := autodiff.Values[float32](p)
		if err != nil {
			return err
		}
		for i := range x {
			x[i] += float32(drift(worker, step, k, i))
		}
		values[k] = autodiff.New(x, p.Shape()...)
	}
	return autodiff.Assign(params, values)
}

// world is workers of this process, their groups and their loops. Member i is worker i.
type world struct {
	t      *testing.T
	ws     []*rpc.Worker
	gs     []*collective.Group
	params [][]*autodiff.Tensor
	loops  []*Loop
}

// newWorld joins workers on a network that delivers at once; the first so many make a group and
// loops.
func newWorld(t *testing.T, size, members int, cfg Config) *world {
	t.Helper()
	w := &world{
		t: t, ws: rpctest.World(t, rpctest.Net(), size), gs: make([]*collective.Group, size),
		loops: make([]*Loop, size),
	}
	for r := range size {
		w.params = append(w.params, newParams(uint64(r)))
	}
	var names []string
	for _, k := range w.ws[:members] {
		names = append(names, k.Name())
	}
	w.each(w.first(members), func(r int) (err error) {
		if w.gs[r], err = collective.Open(t.Context(), w.ws[r], "outer", names...); err == nil {
			w.loops[r], err = New(t.Context(), w.gs[r], w.params[r], cfg)
		}
		return err
	})
	t.Cleanup(func() {
		for r, g := range w.gs {
			if w.loops[r] != nil {
				require.NoError(t, w.loops[r].Close())
			}
			if g != nil {
				require.NoError(t, g.Close())
			}
		}
	})
	return w
}

// first are the first so many ranks.
func (w *world) first(n int) (ranks []int) {
	for r := range n {
		ranks = append(ranks, r)
	}
	return ranks
}

// attempt does something for some ranks at once.
func attempt(ranks []int, fn func(r int) error) []error {
	return rpctest.Attempt(len(ranks), func(k int) error { return fn(ranks[k]) })
}

func (w *world) each(ranks []int, fn func(r int) error) {
	w.t.Helper()
	for k, err := range attempt(ranks, fn) {
		require.NoError(w.t, err, "rank %d", ranks[k])
	}
}

// step makes one inner step on some ranks, and gives their errors.
func (w *world) step(ranks []int, step int) []error {
	return attempt(ranks, func(r int) error {
		return errors.Join(inner(w.params[r], r, step), w.loops[r].Step(w.t.Context()))
	})
}

// requireSame says that all have the same synchronised values and momentum.
func (w *world) requireSame(ranks ...int) {
	w.t.Helper()
	for _, r := range ranks[1:] {
		for k, f := range w.loops[r].parts {
			require.Equal(
				w.t, w.loops[ranks[0]].parts[k].anchor, f.anchor, "rank %d, fragment %d", r, k,
			)
			require.Equal(
				w.t, w.loops[ranks[0]].parts[k].momentum, f.momentum, "rank %d, fragment %d", r, k,
			)
		}
	}
}

// valuesOf are all elements of a rank's parameters.
func valuesOf(t *testing.T, params []*autodiff.Tensor) (all [][]float32) {
	t.Helper()
	for _, p := range params {
		x, err := autodiff.Values[float32](p)
		require.NoError(t, err)
		all = append(all, x)
	}
	return all
}

// canceled is a context that has ended.
func canceled(c context.Context) context.Context {
	c, cancel := context.WithCancel(c)
	cancel()
	return c
}
