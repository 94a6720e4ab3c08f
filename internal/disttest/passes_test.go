package disttest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc"
)

func TestEveryPassHasAnIDOfItsWorkerAndIsGoneWhenItIsLeft(t *testing.T) {
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		seen := map[ctx.PassID]bool{}
		for i, worker := range w.ws {
			for range 200 {
				var p *ctx.Pass
				require.NoError(t, worker.Pass(t.Context(), func(c context.Context) error {
					p = current(c)
					return nil
				}))
				require.Equal(t, ctx.WorkerID(i), p.ID().Creator())
				require.False(t, seen[p.ID()])
				seen[p.ID()] = true
				_, err := p.Gradients()
				require.ErrorIs(t, err, ctx.ErrUnknownPass)
				require.ErrorContains(t, err, p.ID().String())
			}
			require.Empty(t, worker.Passes())
		}
	})
}

// PyTorch allows one context per thread. Here the context.Context says which pass is meant.
func TestOneGoroutineHoldsSeveralPassesWhoseGradientsDoNotMix(t *testing.T) {
	mul := mulFn()
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(outer context.Context) {
			first := must(mul.Call(outer, "worker1", pair{x, x}))
			require.NoError(t, w.ws[0].Pass(outer, func(inner context.Context) error {
				require.NotEqual(t, current(outer).ID(), current(inner).ID())
				second := must(mul.Call(inner, "worker1", pair{x, ones(2)}))
				first = must(mul.Call(outer, "worker2", pair{first, ones(2)}))
				require.Len(t, w.ws[1].Passes(), 2)
				return w.ws[1].Pass(inner, func(third context.Context) error { // of another worker
					require.NoError(t, ctx.Backward(third, autodiff.Sum(must(mul.Call(third, "worker2", pair{x, param(5, 5)})))))
					require.NoError(t, ctx.Backward(inner, autodiff.Sum(second)))
					requireGradients(t, current(inner), map[*autodiff.Tensor][]float64{x: {1, 1}})
					require.Equal(t, []float64{5, 5}, values(t, must(ctx.Gradients(third))[x]))
					requireGradients(t, current(outer), nil)
					require.ErrorIs(t, ctx.Backward(outer, autodiff.Sum(second)), autodiff.ErrMixedPasses)
					return nil
				})
			}))
			require.NoError(t, ctx.Backward(outer, autodiff.Sum(first)), "the inner ones are gone")
			requireGradients(t, current(outer), map[*autodiff.Tensor][]float64{x: {2, 4}})
		})
	}, mul)
}

func TestAValueThatASlowRemoteBeganToMakeBeforeThePassTakesPartInThePassThatFetchesIt(t *testing.T) {
	var made *autodiff.Tensor
	slow := rpc.Define("slow", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
		time.Sleep(time.Second)
		made = autodiff.Add(in.A, in.B).RequireGrad()
		return made, nil
	})
	add := addFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		ref := slow.Remote(w.ws[0].Context(t.Context()), "worker1", pair{ones(2), ones(2)})
		for i := range 2 {
			require.NoError(t, w.ws[i].Pass(t.Context(), func(c context.Context) error {
				if i == 0 {
					x := param(3, 4)
					y := must(add.Call(c, "worker1", pair{must(ref.ToHere(c)), x}))
					require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Mul(y, y))))
					requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {10, 12}})
					requireGradients(t, w.part(t, c, 1), map[*autodiff.Tensor][]float64{made: {10, 12}})
				} else { // its owner's own pass
					require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Scale(made, 7))))
					requireGradients(t, current(c), map[*autodiff.Tensor][]float64{made: {7, 7}})
				}
				return nil
			}))
		}
		ref.Release()
	}, slow, add)
}

func TestAWorkerSaysHowManyPassesAndBackwardsItHasAndWhatTheyHold(t *testing.T) {
	var goOn chan struct{}
	f := chain(func() error { <-goOn; return nil })
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		goOn = make(chan struct{})
		w.pass(t, 0, func(c context.Context) {
			loss := autodiff.Sum(must(f.Call(c, "worker1", route{[]string{"worker2", "worker3"}, param(1, 2), ones(2)})))
			requireInfo := func(backwards int, when string) {
				t.Helper()
				for i, worker := range w.ws {
					require.Len(t, worker.Passes(), 1, when)
					info := worker.Passes()[0]
					require.Equal(t, current(c).ID(), info.ID)
					require.Equal(t, backwards, info.Backwards, "%s: %s", worker.Name(), when)
					require.Positive(t, info.Bytes)
					if backwards > 0 {
						require.Equal(t, []int{1, 2, 2, 1}[i], info.Sends)
						require.Equal(t, []int{1, 2, 2, 1}[i], info.Recvs)
					}
				}
			}
			requireInfo(0, "before")
			done := make(chan error)
			go func() { done <- ctx.Backward(c, loss) }()
			time.Sleep(time.Second) // of the bubble: the gradients are at worker3
			synctest.Wait()
			requireInfo(1, "meanwhile")
			close(goOn)
			require.NoError(t, <-done)
			requireInfo(0, "afterwards")
		})
	}, f)
}

func TestALocalBackwardInsideAPassAndADistributedOneKeepTheirGradientsApart(t *testing.T) {
	add := addFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			loss := autodiff.Sum(must(add.Call(c, "worker1", pair{x, x})))
			require.NoError(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, loss))
			here := must(autodiff.Backward(autodiff.Sum(autodiff.Mul(x, x))))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {2, 2}})
			require.NoError(t, ctx.Backward(c, loss))
			require.Equal(t, []float64{2, 4}, values(t, here.Of(x)))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {4, 4}})
			_, err := autodiff.Backward(autodiff.Sum(must(add.Call(c, "worker1", pair{x, x}))))
			require.ErrorContains(t, err, "use ctx.Backward", "a local backward does not leave the worker")
		})
	}, add)
}

func TestNoGradHoldsForAllFurtherCallsOfACallAndForNothingElse(t *testing.T) {
	there := param(5, 6)
	deep := rpc.Define("deep", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(x, there), nil
	})
	type mind struct {
		X    *autodiff.Tensor
		Grad bool
	}
	hop := rpc.Define("hop", func(c context.Context, in mind) (*autodiff.Tensor, error) {
		if !in.Grad {
			c = ctx.NoGrad(c)
		}
		return deep.Call(c, "worker2", in.X)
	})
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		w.pass(t, 0, func(c context.Context) {
			for what, out := range map[string]*autodiff.Tensor{
				"the caller's": must(hop.Call(ctx.NoGrad(c), "worker1", mind{x, true})),
				"both":         must(hop.Call(ctx.NoGrad(c), "worker1", mind{x, false})),
				"the callee's": must(hop.Call(c, "worker1", mind{x, false})),
			} {
				require.Equal(t, []float64{5, 12}, values(t, out))
				require.False(t, out.RequiresGrad(), what)
			}
			require.Empty(t, current(c).RecvFunctions())
			require.Empty(t, w.part(t, c, 2).SendFunctions())
			require.Empty(t, w.part(t, c, 2).RecvFunctions())
			out := must(hop.Call(c, "worker1", mind{x, true}))
			require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Add(out, must(hop.Call(c, "worker1", mind{x, false}))))))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {5, 6}})
			requireGradients(t, w.part(t, c, 2), map[*autodiff.Tensor][]float64{there: {1, 2}})
		})
	}, deep, hop)
}

func TestABackwardBeginsWhileACallOfItsPassIsUnderWayAndTheCallsResultHasItsOwn(t *testing.T) {
	var goOn chan struct{}
	there := param(5, 6)
	deep := rpc.Define("deep", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(x, there), nil
	})
	hop := rpc.Define("hop", func(c context.Context, wait bool) (*autodiff.Tensor, error) {
		y, err := deep.Call(c, "worker2", param(1, 1))
		if wait {
			<-goOn
		}
		return y, err
	})
	bubble(t, 3, delays, func(t *testing.T, w *world) {
		goOn = make(chan struct{})
		w.pass(t, 0, func(c context.Context) {
			late := hop.Async(c, "worker1", true)
			time.Sleep(time.Second) // of the bubble: it has its result, and keeps it
			require.NoError(t, ctx.Backward(c, autodiff.Sum(must(hop.Call(c, "worker1", false)))))
			requireGradients(t, w.part(t, c, 2), map[*autodiff.Tensor][]float64{there: {1, 1}})
			close(goOn)
			require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Scale(must(late.Wait(c)), 10))))
			requireGradients(t, w.part(t, c, 2), map[*autodiff.Tensor][]float64{there: {11, 11}})
		})
	}, deep, hop)
}
