package rpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

type pair struct{ A, B *autodiff.Tensor }

var addFn = Define("add", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
	return autodiff.Add(in.A, in.B), nil
})

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

func TestEveryTensorKeepsItsOwnRequiresGradFlagInsideAPassOnly(t *testing.T) {
	flags := Define("flags", func(_ context.Context, in []*autodiff.Tensor) ([]bool, error) {
		var out []bool
		for _, x := range in {
			out = append(out, x.RequiresGrad())
		}
		return out, nil
	})
	ws := sim(t, 2, serve(flags))
	in := []*autodiff.Tensor{autodiff.Rand(1).RequireGrad(), autodiff.Rand(2), autodiff.New([]int64{1}), autodiff.Rand(3).RequireGrad(), nil}
	want := []bool{true, false, false, true, false}
	none := make([]bool, 5)
	for _, to := range []string{"worker0", "worker1"} {
		got, err := flags.Call(ws[0].Context(t.Context()), to, in)
		require.NoError(t, err)
		require.Equal(t, none, got, "outside of a pass")
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			got, err := flags.Call(c, to, in)
			require.NoError(t, err)
			require.Equal(t, want, got)
			got, err = flags.Call(ctx.NoGrad(c), to, in)
			require.NoError(t, err)
			require.Equal(t, none, got, "without gradients")
			return nil
		}))
	}
}

// edges counts the send and recv functions of the pass that c carries, on this worker.
func edges(c context.Context) [2]int {
	p, _ := ctx.From(c)
	return [2]int{len(p.SendFunctions()), len(p.RecvFunctions())}
}

func TestOnlyTensorsThatNeedAGradientGetSendAndRecvFunctions(t *testing.T) {
	count := Define("count", func(c context.Context, _ []*autodiff.Tensor) ([2]int, error) { return edges(c), nil })
	fail := Define("fail", func(context.Context, *autodiff.Tensor) (*autodiff.Tensor, error) { return nil, ErrArguments })
	ws := sim(t, 2, serve(count, addFn, fail))
	p, q := autodiff.Rand(2).RequireGrad(), autodiff.Rand(2)
	pass := func(fn func(c context.Context)) {
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error { fn(c); return nil }))
	}
	pass(func(c context.Context) {
		there, err := count.Call(c, "worker1", []*autodiff.Tensor{q, nil})
		require.NoError(t, err)
		require.Equal(t, [2]int{0, 0}, there)
		require.Equal(t, [2]int{0, 0}, edges(c))
	})
	pass(func(c context.Context) {
		there, err := count.Call(ctx.NoGrad(c), "worker1", []*autodiff.Tensor{p})
		require.NoError(t, err)
		require.Equal(t, [2]int{0, 0}, there)
		require.Equal(t, [2]int{0, 0}, edges(c))
	})
	pass(func(c context.Context) {
		sum, err := addFn.Call(c, "worker1", pair{p, q})
		require.NoError(t, err)
		require.True(t, sum.RequiresGrad())
		require.Equal(t, [2]int{1, 1}, edges(c))
		there, err := count.Call(c, "worker1", nil)
		require.NoError(t, err)
		require.Equal(t, [2]int{1, 1}, there)
		_, err = fail.Call(c, "worker1", p)
		require.ErrorIs(t, err, ErrArguments)
		require.Equal(t, [2]int{1, 1}, edges(c), "a call that failed leaves no send function")
		none, err := addFn.Call(c, "worker1", pair{q, q})
		require.NoError(t, err)
		require.False(t, none.RequiresGrad(), "a result without a gradient")
		require.NoError(t, ctx.Backward(c, autodiff.Sum(sum)), "which nobody waits for")
	})
}

func TestAResultThatTheLossDoesNotUseCostsTheBackwardNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := sim(t, 2, serve(addFn))
		p, q := autodiff.Rand(2).RequireGrad(), autodiff.Rand(2).RequireGrad()
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			used, unused := addHere(c, t, p, p), addHere(c, t, q, q)
			require.NotNil(t, unused)
			require.NoError(t, ctx.Backward(c, autodiff.Sum(used)))
			grads, err := ctx.Gradients(c)
			require.NoError(t, err)
			require.Len(t, grads, 1)
			require.Contains(t, grads, p)
			return nil
		}))
	})
}

func addHere(c context.Context, t *testing.T, p, q *autodiff.Tensor) *autodiff.Tensor {
	sum, err := addFn.Call(c, "worker1", pair{p, q})
	require.NoError(t, err)
	return sum
}

func TestARootThatIsNotScalarAndAPassThatIsGoneAreErrorsThatSaySo(t *testing.T) {
	var kept context.Context
	remember := Define("remember", func(context.Context, *autodiff.Tensor) (int, error) { return 0, nil })
	ws := sim(t, 2, serve(addFn, remember))
	p := autodiff.Rand(2).RequireGrad()
	var sum *autodiff.Tensor
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		kept = c
		sum = addHere(c, t, p, p)
		err := ctx.Backward(c, sum)
		require.ErrorIs(t, err, autodiff.ErrNotScalar)
		require.ErrorContains(t, err, "worker0")
		return nil
	}))
	require.ErrorIs(t, ctx.Backward(t.Context(), sum), ctx.ErrNoPass)
	_, err := addFn.Call(kept, "worker1", pair{p, p})
	require.ErrorIs(t, err, ctx.ErrLeft)
	require.NoError(t, ws[0].Settle(t.Context()))

	// A call in a pass that worker1 has freed already, from a caller who does not know yet.
	id, _ := ctx.From(kept)
	link, err := ws[0].members.PeerAt(1).Connection(t.Context())
	require.NoError(t, err)
	for pass, want := range map[uint64]error{uint64(id.ID()): ctx.ErrUnknownPass, 1<<48 | 99: ctx.ErrUnknownPass, 77 << 48: ErrProtocol} {
		raw := rawHeader(t, wire.CallHeader{Function: "remember", Args: []byte{0xf6}, Pass: &wire.PassInfo{Pass: pass, Message: 1}})
		reply, err := exchange(t.Context(), link, &transport.Message{Kind: wire.KindCall, Header: raw}, nil)
		require.NoError(t, err)
		err = answered(reply)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "worker1")
	}
}

func TestLeavingAPassEndsItsCallsOnBothSides(t *testing.T) {
	ended := make(chan error, 1)
	hold := holdFn(ended)
	ws := sim(t, 2, serve(hold))
	var f *Future[int]
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		f = hold.Async(c, "worker1", 0)
		eventually(t, "the call is there", func() bool { return len(ws[1].Passes()) == 1 })
		return nil
	}))
	_, err := f.Wait(t.Context())
	require.ErrorIs(t, err, ctx.ErrLeft)
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestAFunctionThatBreaksOffInAPassFreesEverything(t *testing.T) {
	ws := sim(t, 2, serve(addFn))
	require.Panics(t, func() {
		_ = ws[0].Pass(t.Context(), func(c context.Context) error {
			addHere(c, t, autodiff.Rand(9).RequireGrad(), autodiff.Rand(9))
			panic("in the middle")
		})
	})
	require.NoError(t, ws[0].Settle(t.Context()))
	require.Empty(t, ws[0].Passes())
	require.Empty(t, ws[1].Passes())
}

func TestATensorOfAPassThatTheContextDoesNotCarryIsRefused(t *testing.T) {
	ws := sim(t, 2, serve(addFn))
	outer := ws[0].Context(t.Context())
	require.NoError(t, ws[0].Pass(outer, func(c context.Context) error {
		x := ctx.Own(c, autodiff.Rand(2))
		_, err := addFn.Call(outer, "worker1", pair{x, x})
		require.ErrorIs(t, err, autodiff.ErrMixedPasses)
		require.ErrorContains(t, err, "use the context that Worker.Pass gives")
		_, err = addFn.Call(c, "worker1", pair{x, x})
		require.NoError(t, err)
		return nil
	}))
}

func TestInFastModeAnUnusedResultIsNamedByItsFunctionWhenTheBackwardTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := sim(t, 2, serve(addFn))
		x := autodiff.Rand(2).RequireGrad()
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			_, err := addFn.Call(c, "worker1", pair{x, x})
			require.NoError(t, err)
			c, cancel := context.WithTimeout(c, time.Second)
			defer cancel()
			err = ctx.BackwardWith(c, ctx.Options{Mode: ctx.Fast}, autodiff.Sum(x))
			require.ErrorIs(t, err, ctx.ErrStalled)
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "to worker1 (add)")
			return nil
		}))
	})
}
