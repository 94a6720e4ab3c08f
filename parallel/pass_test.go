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
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/tensors"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
)

// normed is a network with a batch norm, in float64.
type normed struct {
	norm   *nn.BatchNorm
	in     *nn.Linear
	out    *nn.Linear
	images bool // the norm is of images (n, 3, 2, 2)
}

func newNormed(images bool) *normed {
	src, channels := rand.New(rand.NewPCG(6, 6)), 12
	if images {
		channels = 3
	}
	double := func(shape ...int) *autodiff.Tensor {
		return autodiff.Cast(autodiff.NormalFrom(src, 1, shape...), device.Float64).Detach().RequireGrad()
	}
	m := &normed{images: images, in: &nn.Linear{W: double(5, 12), B: double(12)}, out: &nn.Linear{W: double(12, 2), B: double(2)}}
	m.norm = &nn.BatchNorm{Gamma: double(channels), Beta: double(channels), RunningMean: nn.Zeros(device.Float64, channels), RunningVar: nn.Ones(device.Float64, channels)}
	return m
}

func (m *normed) params() []*autodiff.Tensor {
	return slices.Concat(m.in.Params(), m.norm.Params(), m.out.Params())
}

func (m *normed) forward(x *autodiff.Tensor) *autodiff.Tensor {
	h, n := m.in.Forward(x), x.Shape()[0]
	if m.images {
		h = autodiff.Reshape(h, n, 3, 2, 2)
	}
	return m.out.Forward(autodiff.Tanh(autodiff.Reshape(m.norm.Forward(h), n, 12)))
}

// lossOfRows is the mean over rows of a sum of squares.
func lossOfRows(y *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.Mean(autodiff.Sum(autodiff.Mul(y, y), 1))
}

// normalised is what a network makes of a batch: outputs, running statistics and gradients.
type normalised struct{ out, mean, variance, grads []float64 }

func (m *normed) read(y *autodiff.Tensor, grads map[*autodiff.Tensor]*autodiff.Tensor) (k normalised, err error) {
	var errs []error
	values := func(t *autodiff.Tensor) []float64 {
		v, err := autodiff.Values[float64](t)
		errs = append(errs, err)
		return v
	}
	k = normalised{out: values(y), mean: values(m.norm.RunningMean), variance: values(m.norm.RunningVar)}
	for _, p := range m.params() {
		k.grads = append(k.grads, values(grads[p])...)
	}
	return k, errors.Join(errs...)
}

func TestBatchesThatAreNormalisedTogetherAreAsOneBatch(t *testing.T) {
	for size := 1; size <= 4; size++ {
		for _, images := range []bool{false, true} {
			t.Run(fmt.Sprint(size, " ranks, images ", images), func(t *testing.T) {
				newWorld(t, size).normaliseTogether(images)
			})
		}
	}
}

// rowsOfNormed are as many for each rank as its number says.
func rowsOfNormed(step, size int) (x []float64, cuts []int) {
	src := rand.New(rand.NewPCG(uint64(step), 8))
	cuts = []int{0}
	for r := range size {
		cuts = append(cuts, cuts[r]+1+(r+step)%3)
	}
	cuts[size]++
	for range 5 * cuts[size] {
		x = append(x, 100+src.NormFloat64()) // far from 0: nothing may cancel out
	}
	return x, cuts
}

func (w *world) normaliseTogether(images bool) {
	const steps = 3
	t, size := w.t, len(w.gs)
	alone, want := newNormed(images), make([]normalised, steps)
	for step := range want {
		x, cuts := rowsOfNormed(step, size)
		y := alone.forward(autodiff.New(x, cuts[size], 5))
		grads, err := autodiff.Backward(lossOfRows(y))
		require.NoError(t, err)
		want[step], err = alone.read(y, grads.All())
		require.NoError(t, err)
	}
	w.each(func(r int) error {
		m := newNormed(images)
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], m.params(), parallel.Config{})
		if err != nil {
			return err
		}
		for step := range want {
			x, cuts := rowsOfNormed(step, size)
			err := w.ws[r].Pass(t.Context(), func(c context.Context) error {
				m.norm.Total = func(sum *autodiff.Tensor) *autodiff.Tensor { return tensors.AllReduce(c, w.gs[r], sum, collective.Sum) }
				n := cuts[r+1] - cuts[r]
				y := m.forward(ctx.Own(c, autodiff.New(x[5*cuts[r]:5*cuts[r+1]], n, 5)))
				grads, err := replicas.BackwardPass(c, lossOfRows(y), n)
				if err != nil {
					return err
				}
				got, err := m.read(y, grads)
				if err != nil {
					return err
				}
				expected := want[step]
				expected.out = expected.out[2*cuts[r] : 2*cuts[r+1]]
				return got.near(expected)
			})
			if err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		return nil
	})
}

func (k normalised) near(want normalised) error {
	for _, of := range [][2][]float64{{k.out, want.out}, {k.mean, want.mean}, {k.variance, want.variance}, {k.grads, want.grads}} {
		for i, v := range of[1] {
			if math.Abs(of[0][i]-v) > 1e-6 {
				return fmt.Errorf("%v; expected %v", of[0][i], v)
			}
		}
	}
	return nil
}

func TestABackwardInAPassFailsOnAllRanksAndTheNextOneGoesWell(t *testing.T) {
	w := newWorld(t, 2)
	all, ps := w.ready(parallel.Config{})
	inPass := func(r int, rows int, loss func(c context.Context) *autodiff.Tensor) error {
		return w.ws[r].Pass(t.Context(), func(c context.Context) error {
			grads, err := all[r].BackwardPass(c, loss(c), rows)
			if err == nil && len(grads) != 2 {
				err = fmt.Errorf("%d gradients", len(grads))
			}
			return err
		})
	}
	good := func(r int) error {
		return inPass(r, r, func(context.Context) *autodiff.Tensor { return weighted(1, ps[r]...) }) // rank 0 has no rows
	}
	w.each(good)
	for r, err := range w.attempt(func(r int) error {
		return inPass(r, 1-2*r, func(context.Context) *autodiff.Tensor { return weighted(1, ps[r]...) })
	}) {
		require.ErrorIs(t, err, parallel.ErrFailed, "rank %d", r)
	}
	for r, err := range w.attempt(func(r int) error {
		if r == 1 {
			_, err := all[r].BackwardPass(t.Context(), weighted(1, ps[r]...), 1)
			return err
		}
		return good(r)
	}) {
		require.ErrorContains(t, err, ctx.ErrNoPass.Error(), "rank %d", r)
	}
	w.each(good)
	w.requireWell(all, ps)
}
