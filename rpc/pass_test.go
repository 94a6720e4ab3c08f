package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
)

type pair struct{ A, B *autodiff.Tensor }

var addFn = Define("add", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
	return autodiff.Add(in.A, in.B), nil
})

func serve(fns ...Function) func(i int, cfg *Config) {
	return func(_ int, cfg *Config) { cfg.Functions = fns }
}

// The example of the design document.
func TestTheDesignsExampleLeavesItsGradientsInThePassAndNothingAfterwards(t *testing.T) {
	ws := world(t, 2, nil, serve(addFn))
	t1, t2 := autodiff.Rand(3, 3).RequireGrad(), autodiff.Rand(3, 3).RequireGrad()
	t4 := autodiff.Rand(3, 3).RequireGrad()
	err := ws[0].Pass(t.Context(), func(c context.Context) error {
		t3, err := addFn.Call(c, "worker1", pair{t1, t2})
		require.NoError(t, err)
		loss := autodiff.Sum(autodiff.Mul(t3, t4))
		require.NoError(t, ctx.Backward(c, loss))
		grads, err := ctx.Gradients(c)
		require.NoError(t, err)
		require.Len(t, grads, 3)
		want, err := autodiff.Values[float32](t4)
		require.NoError(t, err)
		for _, leaf := range []*autodiff.Tensor{t1, t2} {
			got, err := autodiff.Values[float32](grads[leaf])
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, ws[0].Settle(t.Context()))
	require.Empty(t, ws[0].Passes())
	require.Empty(t, ws[1].Passes())
}
