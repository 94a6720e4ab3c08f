package collective

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
)

// failing is what an operation gives beside its result.
func failing[T any](_ T, err error) error { return err }

func TestWhoGivesNoGroupGetsAnErrorAndNoPanic(t *testing.T) {
	c, x := t.Context(), []float32{1}
	b, err := device.Host().Alloc(4)
	require.NoError(t, err)
	var g *Group
	var narrow Narrow
	for what, call := range map[string]func() error{
		"AllReduce":        func() error { return AllReduce(c, g, x, Sum) },
		"Reduce":           func() error { return Reduce(c, g, x, Sum, 0) },
		"ReduceScatter":    func() error { return failing(ReduceScatter(c, g, x, Sum)) },
		"Broadcast":        func() error { return Broadcast(c, g, x, 0) },
		"Scatter":          func() error { return failing(Scatter(c, g, x, 0)) },
		"AllGather":        func() error { return failing(AllGather(c, g, x)) },
		"Gather":           func() error { return failing(Gather(c, g, x, 0)) },
		"AllToAll":         func() error { return failing(AllToAll(c, g, [][]float32{x})) },
		"Agree":            func() error { return failing(Agree(c, g, 1)) },
		"what is no value": func() error { return failing(Agree(c, g, make(chan int))) },
		"Send":             func() error { return Send(c, g, 0, 0, x) },
		"Recv":             func() error { return failing(Recv(c, g, 0, 0, x)) },
		"RecvNew":          func() error { _, _, err := RecvNew[float32](c, g, Anyone, 0); return err },
		"Narrow":           func() error { return narrow.AllReduce(c, g, x, Sum) },
		"Barrier":          func() error { return g.Barrier(c) },
		"AllReduceBuffers": func() error { return failing(g.AllReduceBuffers(c, Sum, device.Float32, b).Wait(c)) },
		"AllReduced":       func() error { return failing(g.AllReduced(c, Sum, device.Float32, b)) },
		"ReduceScattered":  func() error { return failing(g.ReduceScattered(c, Sum, device.Float32, b)) },
		"AllGathered":      func() error { return failing(g.AllGathered(c, device.Float32, b)) },
		"Exchanged":        func() error { return failing(g.Exchanged(c, device.Float32, []*device.Buffer{b})) },
		"Broadcasted":      func() error { return failing(g.Broadcasted(c, device.Float32, 1, b, 0)) },
		"Split":            func() error { return failing(g.Split(c, 0, 0)) },
		"Hosts":            func() error { _, _, err := g.Hosts(c); return err },
		"Without":          func() error { return failing(g.Without(c)) },
		"With":             func() error { return failing(g.With(c, "x")) },
		"Tune":             func() error { return g.Tune(c) },
		"Compound":         func() error { return failing(g.Compound(c, "x")) },
		"Backward":         func() error { return failing(g.Backward(c, "x")) },
		"Close":            g.Close,
	} {
		require.ErrorIs(t, call(), ErrArguments, what)
		require.ErrorContains(t, call(), "no group", what)
	}
	require.NoError(t, b.Release(), "nobody has kept it")
}

func TestAGroupNeedsAWorkerAndAName(t *testing.T) {
	w := rpctest.World(t, rpctest.Net(), 1)[0]
	open := map[string]func(c context.Context, w *rpc.Worker, name string) (*Group, error){
		"Open":   func(c context.Context, w *rpc.Worker, name string) (*Group, error) { return Open(c, w, name) },
		"Enlist": Enlist,
	}
	for what, open := range open {
		_, err := open(t.Context(), nil, "g")
		require.ErrorIs(t, err, ErrArguments, what)
		require.ErrorContains(t, err, "no worker", what)
		_, err = open(t.Context(), w, "")
		require.ErrorIs(t, err, ErrArguments, what)
		require.ErrorContains(t, err, "without a name", what)
	}
}

func TestSharesOfNobodyAreEmpty(t *testing.T) {
	for _, at := range [][3]int{{10, 0, 0}, {10, -1, 0}, {10, 2, 2}, {10, 2, -1}, {-1, 2, 0}, {math.MinInt, 1, 0}, {10, 0, -1}} {
		lo, hi := Share(at[0], at[1], at[2])
		require.Equal(t, [2]int{}, [2]int{lo, hi}, "%v", at)
	}
	lo, hi := Share(10, 3, 1)
	require.Equal(t, [2]int{4, 7}, [2]int{lo, hi})
}

func TestNegativeTagsAreRefusedAtBothEnds(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	c := t.Context()
	for _, tag := range []int{-1, math.MinInt} {
		for what, err := range map[string]error{
			"Send":    Send(c, gs[0], 1, tag, []int32{1}),
			"Recv":    failing(Recv(c, gs[1], 0, tag, []int32{1})),
			"Anyone":  failing(Recv(c, gs[1], Anyone, tag, []int32{1})),
			"RecvNew": func() error { _, _, err := RecvNew[int32](c, gs[1], 0, tag); return err }(),
		} {
			require.ErrorIs(t, err, ErrArguments, what)
			require.ErrorContains(t, err, fmt.Sprintf("tag %d; expected 0 or more", tag), what)
		}
	}
	n := noteTalk{What: talkWithdraws, Tag: -1}
	require.ErrorIs(t, n.plausible(), rpc.ErrProtocol)
	require.NoError(t, Send(c, gs[0], 1, 0, []int32{1}), "the group lives on")
}
