package rpc

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
)

// times is a hook that scales the gradient and notes that it ran.
func times(seen *sync.Map, name string, by float64) func(*autodiff.Tensor) *autodiff.Tensor {
	return func(g *autodiff.Tensor) *autodiff.Tensor {
		v, _ := autodiff.Values[float64](g)
		seen.Store(name, v)
		return autodiff.Scale(g, by)
	}
}

func TestHooksRunOnEveryWorkerOfAPassBeforeGradientsGoOn(t *testing.T) {
	w := autodiff.New([]float64{2, 2}).RequireGrad() // the server's
	var seen sync.Map
	var remote []float64
	_, err := w.OnGrad(times(&seen, "parameter", 10))
	require.NoError(t, err)
	_, err = w.OnAccumulated(func(_, g *autodiff.Tensor) error { remote, _ = autodiff.Values[float64](g); return nil })
	require.NoError(t, err)
	scale := Define("scale", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		_, err := x.OnGrad(times(&seen, "argument", 5))
		return autodiff.Mul(x, w), err
	})
	ws := sim(t, 2, serve(scale))
	x := autodiff.New([]float64{3, 4}).RequireGrad()
	for range 2 {
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y, err := scale.Call(c, "worker1", x)
			require.NoError(t, err)
			_, err = y.OnGrad(times(&seen, "result", 3))
			require.NoError(t, err)
			require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
			grads, err := ctx.Gradients(c)
			require.NoError(t, err)
			got, err := autodiff.Values[float64](grads[x])
			require.NoError(t, err)
			require.Equal(t, []float64{2 * 3 * 5, 2 * 3 * 5}, got)
			for name, want := range map[string][]float64{"result": {1, 1}, "argument": {6, 6}, "parameter": {9, 12}} {
				v, ran := seen.LoadAndDelete(name)
				require.True(t, ran, name)
				require.Equal(t, want, v, name)
			}
			require.Equal(t, []float64{90, 120}, remote)
			return nil
		}))
	}
}

func TestAHookThatFailsEndsTheBackwardOnEveryWorker(t *testing.T) {
	fail := func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(errors.New("no more")) }
	on := ""
	w := autodiff.New([]float64{2, 2}).RequireGrad()
	hook := func(name string, x *autodiff.Tensor) error {
		if name != on {
			return nil
		}
		_, err := x.OnGrad(fail)
		return err
	}
	scale := Define("scale", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		y := autodiff.Mul(x, w)
		return y, errors.Join(hook("argument", x), hook("remote result", y))
	})
	ws := sim(t, 2, serve(scale))
	for _, on = range []string{"argument", "remote result", "result", "root"} {
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y, err := scale.Call(c, "worker1", autodiff.New([]float64{3, 4}).RequireGrad())
			require.NoError(t, err, on)
			loss := autodiff.Sum(y)
			require.NoError(t, errors.Join(hook("result", y), hook("root", loss)))
			err = ctx.Backward(c, loss)
			require.ErrorContains(t, err, "no more", on)
			require.ErrorContains(t, err, "hooks_test.go:", on)
			return nil
		}))
		require.NoError(t, ws[0].Settle(t.Context()))
	}
}
