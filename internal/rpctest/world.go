package rpctest

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport/simnet"
)

// World joins n workers of this process on a simulated network; all serve the same functions.
// Worker i is on [Host] i. They are closed at the end of the test, and must have left no goroutine
// and no buffer.
func World(t *testing.T, net *simnet.Net, n int, serves ...rpc.Function) []*rpc.Worker {
	t.Helper()
	return WorldWith(t, net, n, func(_ int, cfg *rpc.Config) { cfg.Functions = serves })
}

// WorldWith is World with a configuration for each worker.
func WorldWith(t *testing.T, net *simnet.Net, n int, change func(i int, cfg *rpc.Config)) []*rpc.Worker {
	t.Helper()
	leak.Check(t)
	st := store.NewMemory()
	ws, errs := make([]*rpc.Worker, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cfg := rpc.Config{
				Store: st, Rank: i, WorldSize: n, Network: net.Host(Host(i)), Listen: Host(i) + ":0", Logger: slog.New(slog.DiscardHandler),
			}
			change(i, &cfg)
			ws[i], errs[i] = rpc.Join(t.Context(), cfg)
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, w := range ws {
			if w != nil {
				require.NoError(t, w.Close())
			}
		}
		require.NoError(t, st.Close())
	})
	for i, err := range errs {
		require.NoError(t, err, "worker %d", i)
	}
	return ws
}

// Host is the host of worker i on the network, as simnet's Kill and Cut want it.
func Host(i int) string { return fmt.Sprintf("host%d", i) }

// Net is a simulated network that delivers at once and says nothing.
func Net() *simnet.Net { return simnet.New(simnet.Config{Logger: slog.New(slog.DiscardHandler)}) }

// SlowNet is a simulated network on which every message takes so long; use it in a synctest bubble.
func SlowNet(delay time.Duration) *simnet.Net {
	return simnet.New(simnet.Config{MinDelay: delay, MaxDelay: delay, Logger: slog.New(slog.DiscardHandler)})
}

// Attempt does something for each of n ranks at once, and gives their errors by rank. What it calls
// returns errors: require ends a goroutine that is not the test's without a word.
func Attempt(n int, fn func(rank int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() { errs[r] = fn(r) })
	}
	all.Wait()
	return errs
}
