package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
)

func TestABackwardBeginsWhereAReferencesValueLies(t *testing.T) {
	square := Define("square", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) { return autodiff.Mul(x, x), nil })
	total := Define("total", func(c context.Context, r RRef[*autodiff.Tensor]) (*autodiff.Tensor, error) {
		defer r.Release()
		x, err := r.ToHere(c)
		return autodiff.Sum(x), err
	})
	ws := sim(t, 3, serve(square, total))
	x := autodiff.New([]float64{1, 2}).RequireGrad()
	for _, owner := range []string{"worker0", "worker1"} {
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y := square.Remote(c, "worker2", x)
			loss := total.Remote(c, owner, y) // its value comes from a third worker
			defer y.Release()
			defer loss.Release()
			require.NoError(t, loss.BackwardWith(c, ctx.Options{RetainGraph: true}))
			require.NoError(t, y.BackwardWith(c, ctx.Options{RetainGraph: true, Grads: []*autodiff.Tensor{autodiff.New([]float64{10, 100})}}), "a root that is no scalar")
			require.NoError(t, loss.Backward(c))
			grads, err := ctx.Gradients(c)
			require.NoError(t, err)
			got, err := autodiff.Values[float64](grads[x])
			require.NoError(t, err)
			require.Equal(t, []float64{2*2*1 + 10*2*1, 2*2*2 + 100*2*2}, got)
			return nil
		}))
		require.NoError(t, ws[0].Settle(t.Context()))
	}
}

func TestWhatABackwardFromAReferenceRefuses(t *testing.T) {
	ws := sim(t, 2, serve(addFn, constant))
	c := ws[0].Context(t.Context())
	x := autodiff.New([]float64{1, 2}).RequireGrad()
	n := constant.Remote(c, "worker1", 1)
	y := addFn.Remote(c, "worker1", pair{x, x})
	require.ErrorIs(t, n.Backward(c), ErrArguments)
	require.ErrorIs(t, y.Backward(c), ctx.ErrNoPass)
	require.Error(t, RRef[*autodiff.Tensor]{}.Backward(c))
	require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
		z := addFn.Remote(c, "worker1", pair{x, x})
		defer z.Release()
		require.ErrorIs(t, z.Backward(c), autodiff.ErrNotScalar)
		require.ErrorContains(t, y.Backward(c), "worker1")
		return nil
	}))
	y.Release()
	n.Release()
	require.NoError(t, ws[0].Settle(c))
}
