package collective

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// Whoever looks at a job whose group is stuck sees who is awaited, and where each member is.
func TestAStuckGroupIsSeenFromOutsideWithWhomItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := rpctest.SlowNet(time.Millisecond)
		var st store.Store
		ws := rpctest.WorldWith(t, net, 3, func(i int, cfg *rpc.Config) {
			if i == 0 {
				st = cfg.Store
			}
		})
		gs := groups(t, ws, "layers")
		each(t, gs, func(r int) error { return AllReduce(t.Context(), gs[r], make([]float32, 25), Sum) })
		c, cancel := context.WithCancel(t.Context())
		defer cancel()
		for r := range 2 {
			go func() { _ = gs[r].Barrier(c) }()
		}
		synctest.Wait()
		time.Sleep(2 * time.Second) // of the bubble's clock
		all, err := rpc.Observe(t.Context(), st, net.Host("watcher"), time.Second)
		require.NoError(t, err)
		require.Len(t, all, 3)
		for r, o := range all {
			require.NoError(t, o.Err)
			require.Len(t, o.Status.Groups, 1)
			g := o.Status.Groups[0]
			require.Equal(t, []any{"layers", r, 3, ""}, []any{g.Name, g.Rank, g.Size, g.Ended})
			require.Equal(t, "AllReduce", g.Totals[0].Operation)
			require.Equal(t, []uint64{1, 0, 100}, []uint64{g.Totals[0].Done, g.Totals[0].Failed, g.Totals[0].Bytes})
			if r == 2 {
				require.Empty(t, g.Pending, "it is elsewhere")
				continue
			}
			require.Len(t, g.Pending, 1)
			p := g.Pending[0]
			require.Equal(t, []any{"#1", "Barrier by spread"}, []any{p.Key, p.Call})
			require.Contains(t, p.Line, "status_test.go:")
			require.InDelta(t, 2, p.Seconds, 0.5)
			require.Contains(t, []string{ws[2].Name(), ws[1].Name()}, p.Waits[0].Worker)
		}
		require.Equal(t, ws[2].Name(), all[1].Status.Groups[0].Pending[0].Waits[0].Worker)
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(ws[1].Metrics()))
		n, err := testutil.GatherAndCount(reg, "weft_group_awaited", "weft_group_operations_pending")
		require.NoError(t, err)
		require.Equal(t, 2, n)
	})
}

func TestAGroupThatIsClosedIsNotShown(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 1)
	g, err := Open(t.Context(), ws[0], "g")
	require.NoError(t, err)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(ws[0].Metrics()))
	count := func() int {
		n, err := testutil.GatherAndCount(reg, "weft_group_size")
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 1, count())
	require.NoError(t, g.Close())
	require.Zero(t, count())
}
