package disttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc"
)

func TestRootsOfAnyShapeStartFromGivenGradientsAlsoAcrossWorkers(t *testing.T) {
	mul, matmul := mulFn(), matmulFn()
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		x, y := square3(1), square3(2)
		local := func() []*autodiff.Tensor {
			return []*autodiff.Tensor{autodiff.MatMul(x, y), autodiff.Sum(autodiff.Mul(x, x)), autodiff.Tanh(y)}
		}
		given := []*autodiff.Tensor{square3(4).Detach(), nil, square3(5).Detach()}
		g := must(autodiff.BackwardWith(autodiff.Options{Grads: given}, local()...))
		want := map[*autodiff.Tensor][]float64{x: values(t, g.Of(x)), y: values(t, g.Of(y))}
		for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
			w.pass(t, 0, func(c context.Context) {
				roots := []*autodiff.Tensor{
					must(matmul.Call(c, "worker1", pair{x, y})), autodiff.Sum(must(mul.Call(c, "worker2", pair{x, x}))), autodiff.Tanh(y),
				}
				require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode, Grads: given}, roots...))
				requireGradients(t, current(c), want)
			})
		}
	}, mul, matmul)
}

func TestTheSameRootTwiceCountsTwice(t *testing.T) {
	mul := mulFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			loss := autodiff.Sum(must(mul.Call(c, "worker1", pair{x, ones(2)})))
			require.NoError(t, ctx.Backward(c, loss, loss, autodiff.Sum(x)))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {3, 3}})
		})
	}, mul)
}

// PyTorch's test_backward_invalid_args, and what its Python cannot get wrong.
func TestArgumentsOfABackwardThatDoNotFitAreTypedErrorsAndLeaveThePassAsItWas(t *testing.T) {
	add := addFn()
	sim := device.NewSim(device.SimConfig{})
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			y := must(add.Call(c, "worker1", pair{x, x}))
			loss := autodiff.Sum(y)
			for what, bad := range map[string]struct {
				roots, grads []*autodiff.Tensor
				want         error
			}{
				"no root":                   {nil, nil, autodiff.ErrNoRoots},
				"a nil root":                {[]*autodiff.Tensor{nil}, nil, nil},
				"no gradient":               {[]*autodiff.Tensor{autodiff.Sum(ones(2))}, nil, autodiff.ErrNoGrad},
				"one of two is no scalar":   {[]*autodiff.Tensor{loss, y}, nil, autodiff.ErrNotScalar},
				"a failed root":             {[]*autodiff.Tensor{autodiff.Sum(autodiff.Add(y, ones(3)))}, nil, kernels.ErrOperands},
				"too few gradients":         {[]*autodiff.Tensor{loss, y}, []*autodiff.Tensor{nil}, autodiff.ErrGradient},
				"another shape":             {[]*autodiff.Tensor{y}, []*autodiff.Tensor{ones(3)}, autodiff.ErrGradient},
				"another dtype":             {[]*autodiff.Tensor{y}, []*autodiff.Tensor{autodiff.Ones(device.Float32, 2)}, autodiff.ErrGradient},
				"another device":            {[]*autodiff.Tensor{y}, []*autodiff.Tensor{autodiff.To(ones(2), sim)}, autodiff.ErrGradient},
				"a gradient that failed":    {[]*autodiff.Tensor{y}, []*autodiff.Tensor{autodiff.Failed(kernels.ErrOperands)}, kernels.ErrOperands},
				"nil for what is no scalar": {[]*autodiff.Tensor{y}, []*autodiff.Tensor{nil}, autodiff.ErrNotScalar},
			} {
				err := ctx.BackwardWith(c, ctx.Options{Grads: bad.grads}, bad.roots...)
				require.Error(t, err, what)
				if bad.want != nil {
					require.ErrorIs(t, err, bad.want, what)
				}
				require.ErrorContains(t, err, "worker0", what)
				require.ErrorContains(t, err, current(c).ID().String(), what)
				requireGradients(t, current(c), nil)
				require.Zero(t, w.ws[0].Passes()[0].Backwards)
			}
			theirs := autodiff.Sum(autodiff.Mul(x, ctx.Own(w.ws[1].Context(c), ones(2))))
			require.NoError(t, ctx.Backward(c, loss, theirs), "a context of the other worker carries this pass too")
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {3, 3}})
		})
	}, add)
}

// PyTorch's RRef.backward: the loss may be anywhere.
func TestABackwardMayBeginOnAWorkerThatDidNotOpenThePass(t *testing.T) {
	add := addFn()
	lose := rpc.Define("lose", func(c context.Context, x *autodiff.Tensor) (float64, error) {
		y, err := add.Call(c, "worker2", pair{x, x})
		if err != nil {
			return 0, err
		}
		loss := autodiff.Sum(autodiff.Mul(y, y))
		if err := ctx.Backward(c, loss); err != nil {
			return 0, err
		}
		v, err := autodiff.Values[float64](loss)
		return v[0], err
	})
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			for n := 1; n < 4; n++ {
				require.Equal(t, 20.0, must(lose.Call(c, "worker1", x)))
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {8 * float64(n), 16 * float64(n)}})
			}
		})
	}, add, lose)
}

// PyTorch's test_no_grad_copy and test_grad_copy_sparse_indices_extra_ref: it must not accumulate
// into a buffer that somebody else holds.
func TestWhatAUserHoldsOfGradientsNeverChanges(t *testing.T) {
	same := rpc.Define("same", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) { return x, nil })
	lookup := lookupFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x, tab := param(1, 2), autodiff.New([]float64{1, 2, 3}, 3, 1).RequireGrad()
		given, ids, rows := autodiff.New([]float64{3, 4}), autodiff.New([]int64{2, 0, 2}), autodiff.New([]float64{1, 10, 100}, 3, 1)
		for what, to := range map[string]int{"on this worker": 0, "over the wire": 1} {
			w.pass(t, 0, func(c context.Context) {
				held := map[*autodiff.Tensor][]float64{given: {3, 4}, rows: {1, 10, 100}}
				remove := must(x.OnAccumulated(func(_, g *autodiff.Tensor) error { // a holder that writes what it holds
					return autodiff.Apply(kernels.Update{Rule: kernels.SGD, LR: 0, Step: 1}, []*autodiff.Tensor{x, g}, 0)
				}))
				defer remove()
				hold := func(g *autodiff.Tensor) { held[g] = values(t, g) }
				for n := 1.0; n < 4; n++ {
					y := must(same.Call(c, name(to), x))
					looked := must(lookup.Call(c, name(to), pair{tab, ids}))
					require.NoError(t, ctx.BackwardWith(c, ctx.Options{Grads: []*autodiff.Tensor{given, rows, given}}, y, looked, x))
					grads := must(ctx.Gradients(c))
					require.Equal(t, []float64{6 * n, 8 * n}, values(t, grads[x]), what)
					require.Equal(t, []float64{10 * n, 0, 101 * n}, values(t, grads[tab]), what)
					hold(grads[x])
					hold(grads[tab])
					at, v, ok := grads[tab].Rows()
					require.True(t, ok)
					require.Equal(t, []int64{0, 2}, must(autodiff.Values[int64](at)))
					hold(v)
					for g, want := range held {
						require.Equal(t, want, values(t, g), what)
					}
					require.Equal(t, []int64{2, 0, 2}, must(autodiff.Values[int64](ids)))
				}
				// The other way round: who writes to a gradient that he holds changes nothing in
				// the pass.
				g := must(ctx.Gradients(c))[x]
				require.NoError(t, autodiff.Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*autodiff.Tensor{given, g}, 0))
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {18, 24}, tab: {30, 0, 303}})
				given = autodiff.New([]float64{3, 4})
			})
		}
	}, same, lookup)
}
