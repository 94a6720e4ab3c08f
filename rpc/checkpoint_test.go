package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// layers is an argument with everything in it that may travel.
type layers struct {
	X     *autodiff.Tensor
	More  map[string]*autodiff.Tensor
	Deep  int
	None  *autodiff.Tensor
	Names []string
}

type activations struct {
	Y      []*autodiff.Tensor
	Passed *autodiff.Tensor
	Count  int
}

// tower is a function of many steps over a parameter of the serving worker.
func tower(w *autodiff.Tensor, runs *atomic.Int32) func(context.Context, layers) (activations, error) {
	return func(_ context.Context, in layers) (activations, error) {
		runs.Add(1)
		h := in.X
		for range in.Deep {
			h = autodiff.Tanh(autodiff.Mul(autodiff.Add(h, in.More["b"]), w))
		}
		return activations{Y: []*autodiff.Tensor{h, autodiff.Exp(h)}, Passed: in.X, Count: len(in.Names)}, nil
	}
}

func TestACheckpointedFunctionKeepsLessAndGivesTheSameGradients(t *testing.T) {
	w := autodiff.Rand(16, 16).RequireGrad()
	var plainRuns, runs atomic.Int32
	plain := Define("plain", tower(w, &plainRuns))
	anew := Define("anew", tower(w, &runs), Checkpoint())
	remote := Define("gradient", func(c context.Context, _ int) ([]float32, error) {
		grads, err := ctx.Gradients(c)
		if err != nil {
			return nil, err
		}
		return autodiff.Values[float32](grads[w])
	})
	ws := sim(t, 2, serve(plain, anew, remote))
	x, b := autodiff.Rand(16, 16).RequireGrad(), autodiff.Rand(16, 16).RequireGrad()
	run := func(c context.Context, f *Func[layers, activations], backwards int) (held int64, grads [][]float32) {
		out, err := f.Call(c, "worker1", layers{X: x, More: map[string]*autodiff.Tensor{"b": b}, Deep: 10, Names: []string{"a", "b"}})
		require.NoError(t, err)
		require.Equal(t, 2, out.Count)
		require.Len(t, ws[1].Passes(), 1)
		held = ws[1].Passes()[0].Bytes
		loss := autodiff.Add(autodiff.Sum(autodiff.Mul(out.Y[0], out.Passed)), autodiff.Sum(out.Y[1]))
		for i := range backwards {
			require.NoError(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: i < backwards-1}, loss))
		}
		there, err := remote.Call(c, "worker1", 0)
		require.NoError(t, err)
		here, err := ctx.Gradients(c)
		require.NoError(t, err)
		grads = append(grads, there)
		for _, g := range []*autodiff.Tensor{here[x], here[b]} {
			v, err := autodiff.Values[float32](g)
			require.NoError(t, err)
			grads = append(grads, v)
		}
		return held, grads
	}
	for backwards := 1; backwards <= 2; backwards++ {
		runs.Store(0)
		var want, got [][]float32
		var plainHeld, held int64
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error { plainHeld, want = run(c, plain, backwards); return nil }))
		require.NoError(t, ws[0].Settle(t.Context()))
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error { held, got = run(c, anew, backwards); return nil }))
		require.NoError(t, ws[0].Settle(t.Context()))
		require.Equal(t, want, got)
		require.EqualValues(t, 1+backwards, runs.Load())
		const one = 16 * 16 * 4
		require.EqualValues(t, (2+30+1)*one, plainHeld)
		require.EqualValues(t, (2+3)*one, held, "the arguments and the results")
	}
}

func TestOutsideOfAPassAndWithoutGradientsACheckpointedFunctionRunsOnceAsAnyOther(t *testing.T) {
	var runs atomic.Int32
	inner := Define("inner", func(_ context.Context, i int) (int, error) { return i + 1, nil })
	f := Define("f", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		runs.Add(1)
		if _, err := inner.Call(c, "worker0", 1); err != nil {
			return nil, err
		}
		return autodiff.Exp(x), nil
	}, Checkpoint())
	ws := sim(t, 2, serve(inner, f))
	_, err := f.Call(ws[0].Context(t.Context()), "worker1", autodiff.Scalar(1.0))
	require.NoError(t, err)
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		_, err := f.Call(ctx.NoGrad(c), "worker1", autodiff.Scalar(1.0).RequireGrad())
		return err
	}))
	require.EqualValues(t, 2, runs.Load())
}

func TestACallInACheckpointedFunctionIsAClearError(t *testing.T) {
	inner := Define("inner", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) { return x, nil })
	ways := map[string]func(c context.Context, x *autodiff.Tensor) error{
		"call": func(c context.Context, x *autodiff.Tensor) error { _, err := inner.Call(c, "worker0", x); return err },
		"async": func(c context.Context, x *autodiff.Tensor) error {
			_, err := inner.Async(c, "worker0", x).Wait(c)
			return err
		},
		"remote": func(c context.Context, x *autodiff.Tensor) error { return inner.Remote(c, "worker0", x).Ready(c) },
		"no gradient": func(c context.Context, x *autodiff.Tensor) error {
			_, err := inner.Call(ctx.NoGrad(c), "worker0", x)
			return err
		},
	}
	var fns []Function
	outer := map[string]*Func[*autodiff.Tensor, *autodiff.Tensor]{}
	for name, way := range ways {
		outer[name] = Define(name, func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			return autodiff.Exp(x), way(c, x)
		}, Checkpoint())
		fns = append(fns, outer[name])
	}
	ws := sim(t, 2, serve(append(fns, inner)...))
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		for name, f := range outer {
			_, err := f.Call(c, "worker1", autodiff.Scalar(1.0).RequireGrad())
			require.ErrorIs(t, err, ErrCheckpoint, name)
			require.ErrorContains(t, err, "must not call: it is run again when gradients arrive: "+name)
		}
		return nil
	}))
}

func TestWhatCannotBeRunAgainIsRefusedWhenItIsDeclared(t *testing.T) {
	refs := Define("refs", func(context.Context, RRef[int]) (int, error) { return 0, nil }, Checkpoint())
	stay := Define("stay", func(context.Context, int) (chan int, error) { return nil, nil }, Checkpoint())
	for _, f := range []Function{refs, stay} {
		_, err := f.served()
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, fmt.Sprintf("function %q: ", f.Name()))
		require.ErrorContains(t, err, "without references")
	}
}

func TestAnErrorInTheSecondRunEndsTheBackwardEverywhere(t *testing.T) {
	var runs atomic.Int32
	ways := []func(x *autodiff.Tensor) (*autodiff.Tensor, error){
		func(*autodiff.Tensor) (*autodiff.Tensor, error) { return nil, errors.New("changed my mind") },
		func(*autodiff.Tensor) (*autodiff.Tensor, error) { panic("changed my mind") },
		func(x *autodiff.Tensor) (*autodiff.Tensor, error) { return autodiff.Sum(x), nil },
	}
	_, file, line, _ := runtime.Caller(0)
	f := Define("f", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		if n := runs.Add(1); n%2 == 0 {
			return ways[n/2-1](x)
		}
		return autodiff.Exp(x), nil
	}, Checkpoint())
	ws := sim(t, 2, serve(f))
	for i, want := range []error{nil, ErrPanic, autodiff.ErrRecompute} {
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y, err := f.Call(c, "worker1", autodiff.Rand(2).RequireGrad())
			require.NoError(t, err)
			err = ctx.Backward(c, autodiff.Sum(y))
			require.ErrorContains(t, err, "failed on worker1 in f (", "%d", i)
			var failure *ctx.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, autodiff.Site{File: file, Line: line + 1}.String(), failure.At, "where the function was defined")
			if want != nil {
				require.ErrorIs(t, err, want)
			} else {
				require.ErrorContains(t, err, "changed my mind")
			}
			return nil
		}))
	}
}

func TestASecondRunOnAnotherWorkerReadsTheParametersOfTheFirst(t *testing.T) {
	w := autodiff.New([]float64{3, 4}).RequireGrad()
	f := Define("f", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(autodiff.Mul(x, w), w), nil
	}, Checkpoint())
	ws := sim(t, 2, serve(f))
	x := autodiff.New([]float64{1, 2}).RequireGrad()
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		y, err := f.Call(c, "worker1", x)
		require.NoError(t, err)
		step := kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}
		require.NoError(t, autodiff.Apply(step, []*autodiff.Tensor{w, autodiff.Ones(device.Float64, 2)}, 0))
		require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
		grads, err := ctx.Gradients(c)
		require.NoError(t, err)
		got, err := autodiff.Values[float64](grads[x])
		require.NoError(t, err)
		require.Equal(t, []float64{9, 16}, got)
		return nil
	}))
}

func TestAHookErrorOfAnotherWorkerIsKnownHere(t *testing.T) {
	f := Define("f", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		y := autodiff.Exp(x)
		_, err := y.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { panic("no more") })
		return y, err
	})
	ws := sim(t, 2, serve(f))
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		y, err := f.Call(c, "worker1", autodiff.Rand(2).RequireGrad())
		require.NoError(t, err)
		var hook *autodiff.HookError
		require.ErrorAs(t, ctx.Backward(c, autodiff.Sum(y)), &hook)
		require.Equal(t, "Exp", hook.Function)
		require.Equal(t, "panic: no more", hook.Text)
		require.Contains(t, hook.Hook, "checkpoint_test.go:")
		require.Contains(t, hook.Error(), "no more")
		require.NoError(t, errors.Unwrap(hook))
		return nil
	}))
}

func TestAnAnomalyOfALeafOnAnotherWorkerIsKnownHere(t *testing.T) {
	a := autodiff.Scalar(float32(1)).RequireGrad()
	f := Define("f", func(context.Context, int) (*autodiff.Tensor, error) { return autodiff.Scale(a, 3e38), nil })
	ws := sim(t, 2, serve(f))
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		var roots []*autodiff.Tensor
		for range 2 {
			y, err := f.Call(c, "worker1", 0)
			require.NoError(t, err)
			roots = append(roots, y)
		}
		require.NoError(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, roots...))
		var odd *autodiff.AnomalyError
		require.ErrorAs(t, ctx.BackwardWith(c, ctx.Options{Anomaly: true}, roots...), &odd)
		require.Equal(t, "the leaf float32()", odd.Function)
		return nil
	}))
}
