package disttest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// wasteFn adds through a third worker, and forgets another result of that worker that does not
// depend on its arguments, one that does, and one that comes from the caller.
func wasteFn(add *rpc.Func[pair, *autodiff.Tensor]) *rpc.Func[route, *autodiff.Tensor] {
	return rpc.Define("waste", func(c context.Context, in route) (*autodiff.Tensor, error) {
		for _, to := range in.To[1:] {
			must(add.Call(c, to, pair{in.A, in.A}))
			must(add.Call(c, to, pair{param(7, 7), ones(2)}))
		}
		return add.Call(c, in.To[0], pair{in.A, in.B})
	})
}

// The opposite of PyTorch's test_backward_unused_send_function, which shows that it hangs.
func TestAnUnusedRemoteResultCompletesAndCostsNoMessage(t *testing.T) {
	var n atomic.Int64
	add := addFn()
	waste := wasteFn(add)
	cfg := delays
	cfg.Drop = func(string, string, *transport.Message) bool { n.Add(1); return false }
	bubble(t, 3, cfg, func(t *testing.T, w *world) {
		x, y := param(1, 2), param(3, 4)
		cost := func(forward func(c context.Context) *autodiff.Tensor) (messages int64) {
			w.pass(t, 0, func(c context.Context) {
				loss := autodiff.Sum(forward(c))
				n.Store(0)
				require.NoError(t, ctx.Backward(c, loss))
				messages = n.Load()
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 1}, y: {1, 1}})
				requireGradients(t, w.part(t, c, 1), nil)
			})
			return messages
		}
		used := route{[]string{"worker2"}, x, y}
		want := cost(func(c context.Context) *autodiff.Tensor { return must(waste.Call(c, "worker1", used)) })
		require.Positive(t, want)
		for what, forward := range map[string]func(c context.Context) *autodiff.Tensor{
			"before it": func(c context.Context) *autodiff.Tensor {
				must(add.Call(c, "worker1", pair{x, y}))
				must(add.Call(c, "worker2", pair{param(5, 5), y}))
				return must(waste.Call(c, "worker1", used))
			},
			"after it": func(c context.Context) *autodiff.Tensor {
				out := must(waste.Call(c, "worker1", used))
				must(add.Call(c, "worker2", pair{out, x}))
				return out
			},
			"elsewhere, and at the caller": func(c context.Context) *autodiff.Tensor {
				return must(waste.Call(c, "worker1", route{[]string{"worker2", "worker2", "worker0", "worker1"}, x, y}))
			},
			"through a reference that nobody fetched": func(c context.Context) *autodiff.Tensor {
				ref := add.Remote(c, "worker2", pair{x, x})
				require.NoError(t, ref.Ready(c))
				ref.Release()
				time.Sleep(time.Second) // of the bubble: what the release sends does not count
				return must(waste.Call(c, "worker1", used))
			},
		} {
			require.Equal(t, want, cost(forward), what)
		}
	}, add, waste)
}

func TestElementsOfAStackedResultThatNobodyUsesGiveZeroGradients(t *testing.T) {
	stack := rpc.Define("stack", func(_ context.Context, in []*autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Concat(0, in...), nil
	})
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x, y, z := square3(1), square3(2), square3(3)
		loss := func(all *autodiff.Tensor) *autodiff.Tensor {
			return autodiff.Sum(autodiff.MatMul(autodiff.Slice(all, 0, 0, 3), autodiff.Slice(all, 0, 6, 9)))
		}
		want := must(autodiff.Backward(loss(autodiff.Concat(0, x, y, z))))
		for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
			w.pass(t, 0, func(c context.Context) {
				out := must(stack.Call(c, "worker1", []*autodiff.Tensor{x, y, z}))
				require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode}, loss(out)))
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{
					x: values(t, want.Of(x)), y: make([]float64, 9), z: values(t, want.Of(z)),
				})
			})
		}
	}, stack)
}

func TestOfFiveResultsThreeAreUsedAndOneTwice(t *testing.T) {
	split := rpc.Define("split", func(_ context.Context, x *autodiff.Tensor) ([]*autodiff.Tensor, error) {
		var parts []*autodiff.Tensor
		for i := range 5 {
			parts = append(parts, autodiff.Slice(x, 0, i, i+1))
		}
		return parts, nil
	})
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x := param(1, 2, 3, 4, 5)
		for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
			w.pass(t, 0, func(c context.Context) {
				parts := must(split.Call(c, "worker1", x))
				require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode},
					autodiff.Sum(autodiff.Mul(autodiff.Mul(parts[0], parts[2]), autodiff.Mul(parts[4], parts[4])))))
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {75, 0, 25, 0, 30}})
			})
		}
	}, split)
}

func TestResultsWithoutAGradientTravelBesideThoseWithOne(t *testing.T) {
	type results struct {
		Value, Detached, None, Constant *autodiff.Tensor
		IDs                             *autodiff.Tensor
		Count                           int
	}
	there := param(5, 6)
	all := rpc.Define("all", func(_ context.Context, x *autodiff.Tensor) (results, error) {
		y := autodiff.Mul(x, there)
		return results{y, y.Detach(), nil, ones(2), autodiff.New([]int64{1, 0}), 3}, nil
	})
	none := rpc.Define("none", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(x, there).Detach(), nil
	})
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			out := must(all.Call(c, "worker1", x))
			require.Equal(t, []bool{true, false, false, false, false}, []bool{
				out.Value.RequiresGrad(), out.Detached.RequiresGrad(), out.None.RequiresGrad(), out.Constant.RequiresGrad(), out.IDs.RequiresGrad(),
			})
			require.Equal(t, 3, out.Count)
			require.ErrorIs(t, ctx.Backward(c, autodiff.Sum(out.Detached)), autodiff.ErrNoGrad)
			dead := must(none.Call(c, "worker1", x))
			require.False(t, dead.RequiresGrad())
			loss := autodiff.Sum(autodiff.Add(autodiff.Mul(out.Value, out.Detached), autodiff.Add(out.Constant, dead)))
			require.NoError(t, ctx.Backward(c, loss))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {25, 72}})
			requireGradients(t, w.part(t, c, 1), map[*autodiff.Tensor][]float64{there: {5, 24}})
		})
		w.pass(t, 0, func(c context.Context) { // FAST mode: nobody can send the gradient of a call whose result has none
			must(none.Call(c, "worker1", x))
			err := ctx.BackwardWith(c, fast, autodiff.Sum(must(all.Call(c, "worker1", x)).Value))
			require.ErrorIs(t, err, ctx.ErrStalled)
			require.ErrorContains(t, err, "to worker1 (none)")
		})
	}, all, none)
}
