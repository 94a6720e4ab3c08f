package disttest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// PyTorch's test_async_dist_autograd.
func TestSixtyGoroutinesOfThreeWorkersHammerOneWithGraphsOfFourHops(t *testing.T) {
	there := param(5, 6)
	relay := relayFn(false)
	deep := rpc.Define("deep", func(c context.Context, in route) (*autodiff.Tensor, error) {
		return relay.Call(c, in.To[0], route{in.To[1:], autodiff.Mul(in.A, there), in.B})
	})
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		before := device.Host().Stats().Live
		var wg sync.WaitGroup
		for g := range 60 {
			wg.Go(func() {
				from := 1 + g%3
				x, y := param(1, 2), param(3, 4)
				err := w.ws[from].Pass(t.Context(), func(c context.Context) error {
					to := []string{name(1 + (g+1)%3), name(1 + (g+2)%3), name(g % 4)}
					out, err := deep.Call(c, "worker0", route{to, x, y})
					if err != nil {
						return err
					}
					if err := ctx.BackwardWith(c, ctx.Options{Mode: ctx.Mode(g % 2)}, autodiff.Sum(autodiff.Scale(out, float64(g)))); err != nil {
						return err
					}
					n := float64(g)
					requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {5 * n, 6 * n}, y: {n, n}})
					return nil
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		w.requireNothingLeft(t, before)
	}, relay, deep)
}

// PyTorch's test_multiple_backward.
func TestAThousandBackwardsOfOneGraphAddUp(t *testing.T) {
	mul := mulFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x, y := param(1, 2), param(3, 4)
		for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
			w.pass(t, 0, func(c context.Context) {
				loss := autodiff.Sum(must(mul.Call(c, "worker1", pair{x, y})))
				for range 1000 {
					require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode, RetainGraph: true}, loss))
				}
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {3000, 4000}, y: {1000, 2000}})
				require.Len(t, current(c).SendFunctions(), 1)
			})
		}
	}, mul)
}

func TestGraphsThatBackwardsOfAPassUsedUpAreForgottenOnAllWorkers(t *testing.T) {
	mul := mulFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			var after []string
			for i := range 100 {
				y := must(mul.Call(c, "worker1", pair{x, ones(2)}))
				require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
				after = append(after, fmt.Sprint(len(current(c).SendFunctions()), len(w.part(t, c, 1).SendFunctions())))
				require.Equal(t, "0 0", after[i], "used graphs are forgotten")
			}
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {100, 100}})
		})
	}, mul)
}
