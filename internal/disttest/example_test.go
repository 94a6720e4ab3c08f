package disttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
)

// edgesOf are the edges that gradients of tensors take.
func edgesOf(ts ...*autodiff.Tensor) []autodiff.Edge { return autodiff.NewSource("probe", ts).Next() }

// The example of PyTorch's documentation: t3 = t1 + t2 on worker1, t5 = t3·t4, and the loss is
// their sum.
func TestTheDocumentedExampleIsRecordedAsItIsDrawn(t *testing.T) {
	add := addFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		t1, t2, t4 := param(1, 2, 3), param(4, 5, 6), param(7, 8, 9)
		w.pass(t, 0, func(c context.Context) {
			t3 := must(add.Call(c, "worker1", pair{t1, t2}))
			t5 := autodiff.Mul(t3, t4)
			here, there := current(c), w.part(t, c, 1)
			require.Equal(t, ctx.WorkerID(0), here.ID().Creator())
			require.Equal(t, here.ID(), there.ID())
			require.Equal(t, []ctx.WorkerID{1}, here.Known())
			require.Equal(t, []ctx.WorkerID{0}, there.Known())

			send1, recv2, recv1, send2 := one(t, here.SendFunctions()), one(t, here.RecvFunctions()), one(t, there.RecvFunctions()), one(t, there.SendFunctions())
			require.Equal(t, send1.Message, recv1.Message)
			require.Equal(t, send2.Message, recv2.Message)
			require.Equal(t, ctx.WorkerID(0), send1.Message.Creator())
			require.Equal(t, ctx.WorkerID(1), send2.Message.Creator())
			require.NotEqual(t, uint64(here.ID()), uint64(send1.Message))
			require.Equal(t, []ctx.WorkerID{1, 1, 0, 0}, []ctx.WorkerID{send1.Peer, recv2.Peer, recv1.Peer, send2.Peer})

			require.Equal(t, edgesOf(t1, t2), send1.Node.Next())
			require.Same(t, t1, send1.Node.Next()[0].Node.Leaf())
			require.Same(t, t2, send1.Node.Next()[1].Node.Leaf())
			plus := one(t, send2.Node.Next()).Node
			require.Contains(t, plus.Name(), "Add")
			require.Equal(t, []autodiff.Edge{{Node: recv1.Node, Slot: 0}, {Node: recv1.Node, Slot: 1}}, plus.Next())
			require.Equal(t, []autodiff.Edge{{Node: recv2.Node}}, edgesOf(t3))
			require.Empty(t, recv1.Node.Next())

			_, err := autodiff.Backward(autodiff.Sum(t5))
			require.ErrorContains(t, err, "came from another worker", "the local backward cannot do it")
			t5 = autodiff.Mul(t3, t4)
			require.NoError(t, ctx.Backward(c, autodiff.Sum(t5)))
			requireGradients(t, here, map[*autodiff.Tensor][]float64{t1: {7, 8, 9}, t2: {7, 8, 9}, t4: {5, 7, 9}})
			requireGradients(t, there, nil)
		})
		w.pass(t, 0, func(c context.Context) { requireGradients(t, current(c), nil) })
		for _, leaf := range []*autodiff.Tensor{t1, t2, t4} {
			require.True(t, leaf.IsLeaf())
			require.Nil(t, leaf.Owner())
		}
	}, add)
}

// one is the only element.
func one[T any](t testing.TB, s []T) T {
	t.Helper()
	require.Len(t, s, 1)
	return s[0]
}
