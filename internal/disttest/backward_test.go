package disttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// calling is how a computation reaches a worker: through rpc, or not at all for the oracle.
type calling func(to int, fn *rpc.Func[pair, *autodiff.Tensor], a, b *autodiff.Tensor) *autodiff.Tensor

var kinds = map[string]func(a, b *autodiff.Tensor) *autodiff.Tensor{"add": autodiff.Add, "mul": autodiff.Mul, "matmul": autodiff.MatMul}

// requireLocal runs a computation over workers and by itself, and compares the gradients of the
// leaves.
func requireLocal(t *testing.T, c context.Context, leaves []*autodiff.Tensor, f func(call calling) []*autodiff.Tensor) { //nolint:revive // t is first in tests
	t.Helper()
	want, err := autodiff.Backward(f(func(_ int, fn *rpc.Func[pair, *autodiff.Tensor], a, b *autodiff.Tensor) *autodiff.Tensor {
		return kinds[fn.Name()](a, b)
	})...)
	require.NoError(t, err)
	require.NoError(t, ctx.Backward(c, f(func(to int, fn *rpc.Func[pair, *autodiff.Tensor], a, b *autodiff.Tensor) *autodiff.Tensor {
		return must(fn.Call(c, name(to), pair{a, b}))
	})...))
	have := must(ctx.Gradients(c))
	require.Equal(t, want.Len(), len(have))
	for _, leaf := range leaves {
		w, h := want.Of(leaf), have[leaf]
		require.Equal(t, w == nil, h == nil)
		if w == nil {
			continue
		}
		require.True(t, w.Type().Equal(h.Type()), "%v, want %v", h.Type(), w.Type())
		if w.Dtype() == device.Float32 {
			require.Equal(t, must(autodiff.Values[float32](w)), must(autodiff.Values[float32](h)))
		} else {
			require.InDeltaSlice(t, values(t, w), values(t, h), 1e-12)
		}
	}
}

func square3(v float64) *autodiff.Tensor {
	return autodiff.New([]float64{v, 1, 2, -v, 0.5, 3, 1, v, -1}, 3, 3).RequireGrad()
}

func TestGradientsEqualThoseOfOneProcess(t *testing.T) {
	add, mul, matmul := addFn(), mulFn(), matmulFn()
	x, y, z := square3(1), square3(2), square3(3)
	wide := autodiff.New([]float64{1, 2, 3, 4, 5, 6}, 3, 2).RequireGrad()
	single := autodiff.New([]float32{1, 2, 3}).RequireGrad()
	leaves := []*autodiff.Tensor{x, y, z, wide, single}
	sum := func(ts ...*autodiff.Tensor) (roots []*autodiff.Tensor) {
		for _, x := range ts {
			roots = append(roots, autodiff.Sum(x))
		}
		return roots
	}
	for what, f := range map[string]func(call calling) []*autodiff.Tensor{
		"Simple": func(call calling) []*autodiff.Tensor { return sum(call(1, add, x, y)) },
		"Self":   func(call calling) []*autodiff.Tensor { return sum(call(0, mul, x, call(0, add, x, y))) },
		"ManyRoundTrips": func(call calling) []*autodiff.Tensor {
			a := call(1, add, x, y)
			b := call(2, mul, a, z)
			a = call(3, matmul, b, a)
			b = call(1, matmul, a, x)
			return sum(call(2, add, b, call(3, mul, b, a)))
		},
		"DifferentDims": func(call calling) []*autodiff.Tensor {
			return sum(call(2, matmul, call(1, matmul, x, wide), autodiff.Transpose(wide)))
		},
		"Broadcast":      func(call calling) []*autodiff.Tensor { return sum(call(1, mul, x, autodiff.Mean(y, 0))) },
		"UnusedElements": func(call calling) []*autodiff.Tensor { return sum(autodiff.Slice(call(1, mul, x, y), 0, 1, 2)) },
		"SeveralRoots": func(call calling) []*autodiff.Tensor {
			return append(sum(call(1, add, x, y), call(2, mul, x, z)), autodiff.Mean(autodiff.Tanh(call(3, add, z, z))))
		},
		"DifferentDtypes": func(call calling) []*autodiff.Tensor {
			return sum(call(1, mul, single, single), call(1, mul, x, y))
		},
		"MixedWithLocal": func(call calling) []*autodiff.Tensor {
			return sum(autodiff.Mul(call(1, add, x, y), autodiff.MatMul(x, z)))
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, 4, delays, func(t *testing.T, w *world) {
				w.pass(t, 0, func(c context.Context) { requireLocal(t, c, leaves, f) })
			}, add, mul, matmul)
		})
	}
}

func TestSomeOfManyResultsMayBeUnused(t *testing.T) {
	split := rpc.Define("split", func(_ context.Context, in []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
		var rows []*autodiff.Tensor
		for i := range 3 {
			rows = append(rows, autodiff.Slice(autodiff.Mul(in[0], in[0]), 0, i, i+1))
		}
		return append(rows, in[1]), nil
	})
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x, unused := square3(2), param(1)
		w.pass(t, 0, func(c context.Context) {
			rows := must(split.Call(c, "worker1", []*autodiff.Tensor{x, unused}))
			require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Add(rows[0], autodiff.Scale(rows[2], 2)))))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {4, 2, 4, 0, 0, 0, 4, 8, -4}})
		})
	}, split)
}

func TestABackwardWithoutCallsNeedsOnlyItsPass(t *testing.T) {
	bubble(t, 1, delays, func(t *testing.T, w *world) {
		x, y := param(1, 2), param(3, 4)
		require.ErrorIs(t, ctx.Backward(t.Context(), autodiff.Sum(x)), ctx.ErrNoPass)
		require.ErrorIs(t, ctx.Backward(w.ws[0].Context(t.Context()), autodiff.Sum(x)), ctx.ErrNoPass)
		var left context.Context
		w.pass(t, 0, func(c context.Context) {
			left = c
			require.ErrorIs(t, ctx.Backward(c), autodiff.ErrNoRoots)
			require.ErrorIs(t, ctx.Backward(c, autodiff.Sum(ones(2))), autodiff.ErrNoGrad)
			require.ErrorIs(t, ctx.Backward(c, autodiff.Add(x, y)), autodiff.ErrNotScalar)
			require.Error(t, ctx.Backward(c, nil))
			require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Add(x, y))))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 1}, y: {1, 1}})
		})
		require.ErrorIs(t, ctx.Backward(left, autodiff.Sum(x)), ctx.ErrLeft)
		_, err := ctx.Gradients(left)
		require.ErrorIs(t, err, ctx.ErrUnknownPass)
	})
}

func TestGradientsOfRepeatedBackwardsAddUpOnEveryWorker(t *testing.T) {
	there := param(5, 6)
	scale := rpc.Define("scale", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(x, there), nil
	})
	hop := rpc.Define("hop", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return scale.Call(c, "worker2", x)
	})
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			loss := autodiff.Sum(must(hop.Call(c, "worker1", x)))
			for range 99 {
				require.NoError(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, loss))
			}
			require.NoError(t, ctx.Backward(c, loss))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {500, 600}})
			requireGradients(t, w.part(t, c, 2), map[*autodiff.Tensor][]float64{there: {100, 200}})
			require.ErrorIs(t, ctx.Backward(c, loss), autodiff.ErrGraphFreed)
		})
	}, hop, scale)
}

// trapped is x through a function whose backward asks take.
func trapped(x *autodiff.Tensor, take func() error) *autodiff.Tensor {
	one := ones(x.Shape()...)
	autodiff.NewSink("trap", []*autodiff.Tensor{one}, []bool{true}, func([]*autodiff.Tensor) error { return take() })
	return autodiff.Mul(x, one)
}

// chain sends x from worker to worker; the last traps it.
func chain(take func() error) *rpc.Func[route, *autodiff.Tensor] {
	var f *rpc.Func[route, *autodiff.Tensor]
	f = rpc.Define("chain", func(c context.Context, in route) (*autodiff.Tensor, error) {
		if len(in.To) == 0 {
			return trapped(in.A, take), nil
		}
		return f.Call(c, in.To[0], route{in.To[1:], in.A, in.B})
	})
	return f
}

func TestAnErrorDeepInABackwardReachesTheRootAndThePassGoesOn(t *testing.T) {
	var broken atomic.Bool
	f := chain(func() error {
		if broken.Load() {
			return errors.New("simulated")
		}
		return nil
	})
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			loss := autodiff.Sum(must(f.Call(c, "worker1", route{[]string{"worker2", "worker3"}, x, ones(2)})))
			broken.Store(true)
			for range 20 {
				err := ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, loss)
				require.ErrorContains(t, err, "failed on worker3 in trap: simulated")
				var f *ctx.Failure
				require.ErrorAs(t, err, &f)
				require.Equal(t, "worker3", f.Worker)
				require.Equal(t, "trap", f.Op)
				require.Equal(t, current(c).ID(), f.Pass)
				require.Equal(t, "simulated", f.Cause)
			}
			requireGradients(t, current(c), nil)
			broken.Store(false)
			require.NoError(t, ctx.Backward(c, loss))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 1}})
		})
	}, f)
}

var fast = ctx.Options{Mode: ctx.Fast}

func TestInFastModeAnUnusedRemoteResultEndsAtTheDeadlineAndIsNamed(t *testing.T) {
	add := addFn()
	wasteful := rpc.Define("wasteful", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		must(add.Call(c, "worker2", pair{x, x}))
		return autodiff.Scale(x, 2), nil
	})
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		for what, f := range map[string]func(c context.Context) (loss *autodiff.Tensor, worker, send string){
			"AtTheRoot": func(c context.Context) (*autodiff.Tensor, string, string) {
				must(add.Call(c, "worker1", pair{param(1, 2), ones(2)}))
				return autodiff.Sum(param(1, 2)), "worker0", " to worker1"
			},
			"BesideAUsedOne": func(c context.Context) (*autodiff.Tensor, string, string) {
				must(add.Call(c, "worker1", pair{param(1, 2), ones(2)}))
				return autodiff.Sum(must(add.Call(c, "worker1", pair{param(1, 2), ones(2)}))), "worker1", " to worker0"
			},
			"Elsewhere": func(c context.Context) (*autodiff.Tensor, string, string) {
				return autodiff.Sum(must(wasteful.Call(c, "worker1", param(1, 2)))), "worker1", " to worker2"
			},
		} {
			w.pass(t, 0, func(c context.Context) {
				loss, worker, send := f(c)
				start := time.Now()
				c, cancel := context.WithTimeout(c, 10*time.Second)
				defer cancel()
				err := ctx.BackwardWith(c, fast, loss)
				require.ErrorIs(t, err, ctx.ErrStalled, what)
				require.ErrorIs(t, err, context.DeadlineExceeded, what)
				require.ErrorContains(t, err, "failed on "+worker, what)
				require.ErrorContains(t, err, send, what)
				require.LessOrEqual(t, time.Since(start), 10*time.Second, what)
				require.Greater(t, time.Since(start), 8*time.Second, what)
			})
		}
		w.pass(t, 0, func(c context.Context) { // the worker's own timeout, where there is no deadline
			must(add.Call(c, "worker1", pair{param(1, 2), ones(2)}))
			start := time.Now()
			require.ErrorIs(t, ctx.BackwardWith(c, fast, autodiff.Sum(param(1, 2))), ctx.ErrStalled)
			require.Equal(t, time.Minute, time.Since(start))
		})
	}, add, wasteful)
}

func TestPassesOfManyGoroutinesShareParametersAndNotGradients(t *testing.T) {
	relay := relayFn(false)
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		before := device.Host().Stats().Live
		x := param(1, 2)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 5 {
					err := w.ws[g].Pass(t.Context(), func(c context.Context) error {
						out, err := relay.Call(c, name(i%4), route{[]string{name(g), "worker0", name((g + i) % 4)}, x, x})
						if err != nil {
							return err
						}
						if err := ctx.Backward(c, autodiff.Sum(autodiff.Scale(out, float64(g+1)))); err != nil {
							return err
						}
						v := 2 * float64(g+1)
						requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {v, v}})
						return nil
					})
					require.NoError(t, err)
				}
			})
		}
		wg.Wait()
		w.requireNothingLeft(t, before)
	}, relay)
}

func TestTrainersGetEachTheirOwnGradientOnTheParameterServer(t *testing.T) {
	p := param(1, 2)
	type batch struct {
		Ref rpc.RRef[*autodiff.Tensor]
		X   *autodiff.Tensor
	}
	grad := rpc.Define("grad", func(c context.Context, _ struct{}) (*autodiff.Tensor, error) { return must(ctx.Gradients(c))[p], nil })
	train := rpc.Define("train", func(c context.Context, in batch) ([]float64, error) {
		me, _ := rpc.FromContext(c)
		var v []float64
		err := me.Pass(c, func(c context.Context) error {
			w, err := in.Ref.ToHere(c)
			if err != nil {
				return err
			}
			if err := ctx.Backward(c, autodiff.Sum(autodiff.Mul(w, in.X))); err != nil {
				return err
			}
			g, err := grad.Call(ctx.NoGrad(c), "worker0", struct{}{})
			if err != nil {
				return err
			}
			v, err = autodiff.Values[float64](g)
			return err
		})
		in.Ref.Release()
		return v, errors.Join(err, me.Settle(c))
	})
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		before := device.Host().Stats().Live
		c := w.ws[0].Context(t.Context())
		ref := must(rpc.NewRRef(c, p))
		var fs []*rpc.Future[[]float64]
		for i := 1; i < 4; i++ {
			fs = append(fs, train.Async(c, name(i), batch{ref, autodiff.New([]float64{3, 4})}))
		}
		for _, f := range fs {
			require.Equal(t, []float64{3, 4}, must(f.Wait(c)))
		}
		ref.Release()
		w.requireNothingLeft(t, before)
	}, grad, train)
}

func TestGradientsFollowReferencesToTheirOwners(t *testing.T) {
	p := param(1, 2)
	type use struct {
		Ref rpc.RRef[*autodiff.Tensor]
		X   *autodiff.Tensor
	}
	get := rpc.Define("get", func(context.Context, struct{}) (*autodiff.Tensor, error) { return p, nil })
	apply := rpc.Define("apply", func(c context.Context, in use) (*autodiff.Tensor, error) {
		defer in.Ref.Release()
		w, err := in.Ref.ToHere(c)
		if err != nil {
			return nil, err
		}
		return autodiff.Mul(w, in.X), nil
	})
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		x := param(3, 4)
		w.pass(t, 0, func(c context.Context) {
			ref := get.Remote(c, "worker2", struct{}{})
			defer ref.Release()
			here := must(ref.ToHere(c))
			there := must(apply.Call(c, "worker1", use{ref, x}))
			require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Add(there, here))))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 2}})
			requireGradients(t, w.part(t, c, 1), nil)
			requireGradients(t, w.part(t, c, 2), map[*autodiff.Tensor][]float64{p: {4, 5}})
		})
	}, get, apply)
}
