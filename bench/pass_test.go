package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc"
)

// example is the pass of PyTorch's documentation: two tensors are added on the other worker, the
// sum is multiplied by a third here, and the product summed.
type example struct {
	a, b, c *autodiff.Tensor
	mode    ctx.Mode
}

func newExample(n int) example {
	return example{a: autodiff.Rand(n, n).RequireGrad(), b: autodiff.Rand(n, n).RequireGrad(), c: autodiff.Rand(n, n).RequireGrad()}
}

// pass opens a pass, runs it forward and backward, reads the gradients and leaves it. The other
// worker is told to clean up without waiting for it: Worker.Settle waits.
func (e example) pass(c context.Context, w *rpc.Worker, look func(map[*autodiff.Tensor]*autodiff.Tensor)) error {
	return w.Pass(c, func(c context.Context) error {
		t3, err := add.Call(c, peer, pair{e.a, e.b})
		if err != nil {
			return err
		}
		if err := ctx.BackwardWith(c, ctx.Options{Mode: e.mode}, autodiff.Sum(autodiff.Mul(t3, e.c))); err != nil {
			return err
		}
		grads, err := ctx.Gradients(c)
		if err != nil {
			return err
		}
		if len(grads) != 3 {
			return fmt.Errorf("%d gradients; expected 3", len(grads))
		}
		look(grads)
		return nil
	})
}

func lookAway(map[*autodiff.Tensor]*autodiff.Tensor) {}

// BenchmarkPass is a whole pass including its clean-up on both workers. Without settle=each a pass
// is left as a program leaves it: the next one begins while the other worker cleans up, and the
// clock stops when all are cleaned up. With it, every iteration waits for the other worker's word
// that it has cleaned up. mode=fast is FAST mode, for what SMART costs.
func BenchmarkPass(b *testing.B) {
	overLanes(b, func(b *testing.B, w *rpc.Worker) {
		for _, n := range []int{3, 1024} {
			b.Run(fmt.Sprintf("size=%dx%d", n, n), func(b *testing.B) { benchmarkPass(b, w, newExample(n), false) })
			b.Run(fmt.Sprintf("size=%dx%d/settle=each", n, n), func(b *testing.B) { benchmarkPass(b, w, newExample(n), true) })
			fast := newExample(n)
			fast.mode = ctx.Fast
			b.Run(fmt.Sprintf("size=%dx%d/mode=fast", n, n), func(b *testing.B) { benchmarkPass(b, w, fast, false) })
		}
	})
}

func benchmarkPass(b *testing.B, w *rpc.Worker, e example, settleEach bool) {
	c, n := b.Context(), e.a.Shape()[0]
	for range 3 {
		require.NoError(b, e.pass(c, w, lookAway))
	}
	require.NoError(b, w.Settle(c))
	b.ReportAllocs()
	for b.Loop() {
		err := e.pass(c, w, lookAway)
		if err == nil && settleEach {
			err = w.Settle(c)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StartTimer()
	err := w.Settle(c)
	b.StopTimer()
	require.NoError(b, err)
	require.Empty(b, w.Passes())
	perSecond(b, 1, "passes")
	if n > 100 { // two tensors there, one back, its gradient there, two gradients back
		perSecond(b, 6*4*float64(n*n)/1e9, "GB")
	}
}

func TestAPassBetweenTwoProcessesGivesTheGradientsAndLeavesNothing(t *testing.T) {
	overLanes(t, func(t *testing.T, w *rpc.Worker) {
		for _, n := range []int{3, 257} {
			e := newExample(n)
			require.NoError(t, e.pass(t.Context(), w, func(grads map[*autodiff.Tensor]*autodiff.Tensor) {
				require.Equal(t, values(t, e.c), values(t, grads[e.a]))
				require.Equal(t, values(t, e.c), values(t, grads[e.b]))
				require.Equal(t, values(t, autodiff.Add(e.a, e.b)), values(t, grads[e.c]))
			}))
			require.NoError(t, w.Settle(t.Context()))
			require.Empty(t, w.Passes())
		}
	})
}

func values(t testing.TB, x *autodiff.Tensor) []float32 {
	t.Helper()
	v, err := autodiff.Values[float32](x)
	require.NoError(t, err)
	return v
}
