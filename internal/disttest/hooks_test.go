package disttest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc"
)

// twice is a hook that doubles a gradient and counts its calls.
func twice(calls *atomic.Int64) func(g *autodiff.Tensor) *autodiff.Tensor {
	return func(g *autodiff.Tensor) *autodiff.Tensor { calls.Add(1); return autodiff.Scale(g, 2) }
}

// PyTorch's test_backward_verify_hooks, with hooks on all kinds of tensors of a call: those that
// leave, that arrive, that are made, that come back.
func TestHooksOnAllWorkersChangeTheGradientsAsTheyDoInOneProcess(t *testing.T) {
	var calls atomic.Int64
	there := param(5, 6)
	hook := func(x *autodiff.Tensor) *autodiff.Tensor { must(x.OnGrad(twice(&calls))); return x }
	body := func(a, b *autodiff.Tensor) *autodiff.Tensor {
		inner := hook(autodiff.Mul(hook(a), there)) // read twice: the hook sees the sum
		return autodiff.Add(autodiff.Mul(inner, b), inner)
	}
	f := rpc.Define("hooked", func(_ context.Context, in pair) (*autodiff.Tensor, error) { return body(in.A, in.B), nil })
	relay := rpc.Define("relay", func(c context.Context, in pair) (*autodiff.Tensor, error) {
		out, err := f.Call(c, "worker2", pair{hook(in.A), in.B})
		if err != nil {
			return nil, err
		}
		return hook(out), nil
	})
	leaf := func() *autodiff.Tensor { return hook(param(1, 2)) }
	x, y := leaf(), leaf()
	loss := func(call func(a, b *autodiff.Tensor) *autodiff.Tensor) *autodiff.Tensor {
		sent := hook(autodiff.Tanh(x))
		return autodiff.Sum(autodiff.Mul(hook(call(sent, y)), sent))
	}
	cross := func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Scale(x, 1) } // another tensor of the same value
	want := must(autodiff.Backward(loss(func(a, b *autodiff.Tensor) *autodiff.Tensor {
		return cross(hook(cross(body(cross(hook(cross(a))), b))))
	})))
	local := calls.Swap(0)
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
			calls.Store(0)
			w.pass(t, 0, func(c context.Context) {
				require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode}, loss(func(a, b *autodiff.Tensor) *autodiff.Tensor {
					return must(relay.Call(c, "worker1", pair{a, b}))
				})))
				require.Equal(t, local, calls.Load(), "each hook runs once")
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: values(t, want.Of(x)), y: values(t, want.Of(y))})
				requireGradients(t, w.part(t, c, 2), map[*autodiff.Tensor][]float64{there: values(t, want.Of(there))})
			})
		}
	}, f, relay)
}

// PyTorch's test_post_hooks.
func TestHooksAfterAccumulationRunOncePerBackwardHoweverManyWorkersSendAGradient(t *testing.T) {
	there := param(5, 6)
	var order []string
	after := func(x *autodiff.Tensor, name string) (remove func()) {
		return must(x.OnAccumulated(func(leaf, g *autodiff.Tensor) error {
			if leaf != x {
				return errors.New("another leaf")
			}
			order = append(order, fmt.Sprint(name, values(t, g)))
			return nil
		}))
	}
	mul := rpc.Define("mul", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(x, there), nil
	})
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		order = nil
		x := param(1, 2)
		defer after(x, "a")()
		defer after(x, "b")()
		defer after(there, "there")()
		w.pass(t, 0, func(c context.Context) {
			loss := autodiff.Sum(autodiff.Add(must(mul.Call(c, "worker2", x)), autodiff.Add(must(mul.Call(c, "worker2", x)), x)))
			require.NoError(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, loss))
			require.ElementsMatch(t, []string{"a[11 13]", "b[11 13]", "there[2 4]"}, order)
			order = nil
			require.NoError(t, ctx.Backward(c, loss))
			require.ElementsMatch(t, []string{"a[11 13]", "b[11 13]", "there[2 4]"}, order, "the sum over one backward, and one run")
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {22, 26}})
		})
	}, mul)
}

func line() int {
	_, _, l, _ := runtime.Caller(1)
	return l
}

// requireFailure gives the failure that an error is, which began on a worker, or with its loss.
func requireFailure(t *testing.T, err error, worker string) *ctx.Failure {
	t.Helper()
	var f *ctx.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, worker, f.Worker, "%v", f)
	return f
}

func TestAHookThatFailsOnAnotherWorkerFailsTheBackwardWithWorkerAndPlaceOfTheHook(t *testing.T) {
	var onArrival, onLeaf bool
	var at int
	there := param(5, 6)
	bad := func(*autodiff.Tensor) *autodiff.Tensor {
		return autodiff.Failed(errors.New("the hook does not like it"))
	}
	f := rpc.Define("mul", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
		y := autodiff.Mul(in.A, there)
		on := y
		if onArrival {
			on = in.A
		}
		if !onLeaf {
			must(on.OnGrad(bad))
			at = line() - 1
		}
		return autodiff.Add(y, in.B), nil
	})
	relay := rpc.Define("relay", func(c context.Context, in pair) (*autodiff.Tensor, error) { return f.Call(c, "worker2", in) })
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		for what, set := range map[string]func(){
			"on what it made": func() { onArrival, onLeaf = false, false },
			"on what came":    func() { onArrival, onLeaf = true, false },
			"on a leaf": func() {
				onLeaf = true
				must(there.OnAccumulated(func(_, _ *autodiff.Tensor) error { panic("the hook does not like it") }))
				at = line() - 1
			},
		} {
			set()
			w.pass(t, 0, func(c context.Context) {
				x := param(1, 2)
				err := ctx.Backward(c, autodiff.Sum(must(relay.Call(c, "worker1", pair{x, ones(2)}))))
				f := requireFailure(t, err, "worker2")
				require.Contains(t, f.Cause, "the hook does not like it", what)
				require.Contains(t, f.Cause, fmt.Sprintf("hooks_test.go:%d", at), what)
				requireGradients(t, current(c), nil)
				requireGradients(t, w.part(t, c, 2), nil)
			})
			there = param(5, 6) // without the hook
		}
	}, f, relay)
}

func TestAnomalyModeNamesTheFunctionWorkerFileAndLineOfTheForwardCall(t *testing.T) {
	var at int
	f := rpc.Define("spoil", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
		y := autodiff.Mul(in.A, in.B)
		root := autodiff.Sqrt(y)
		at = line() - 1
		return autodiff.Mul(root, in.B), nil
	})
	relay := rpc.Define("relay", func(c context.Context, in pair) (*autodiff.Tensor, error) { return f.Call(c, "worker2", in) })
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		for what, in := range map[string][]float64{"infinity": {0, 1}, "NaN": {-1, 1}} {
			for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
				w.pass(t, 0, func(c context.Context) {
					x := param(in...)
					loss := autodiff.Sum(must(relay.Call(c, "worker1", pair{x, ones(2)})))
					err := ctx.BackwardWith(c, ctx.Options{Mode: mode, Anomaly: true, RetainGraph: true}, loss)
					require.ErrorIs(t, err, autodiff.ErrAnomaly)
					require.ErrorContains(t, err, what)
					f := requireFailure(t, err, "worker2")
					require.Equal(t, "Sqrt", f.Op)
					require.Contains(t, f.At, fmt.Sprintf("internal/disttest/hooks_test.go:%d", at))
					requireGradients(t, current(c), nil)
					require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode}, loss), "without it the gradient is what it is")
					g := values(t, must(ctx.Gradients(c))[x])[0]
					require.True(t, math.IsNaN(g) || math.IsInf(g, 0))
				})
			}
		}
		w.pass(t, 0, func(c context.Context) {
			require.NoError(t, ctx.BackwardWith(c, ctx.Options{Anomaly: true}, autodiff.Sum(must(relay.Call(c, "worker1", pair{param(1, 4), ones(2)})))))
		})
	}, f, relay)
}
