package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

const testToken = "0123456789abcdef0123456789abcdef"

// world starts n workers in this process on one store. network gives worker i its network; nil means QUIC on loopback.
func world(t testing.TB, n int, network func(i int) transport.Network, change func(i int, cfg *Config)) []*Worker {
	t.Helper()
	st := store.NewMemory()
	t.Cleanup(func() { _ = st.Close() })
	workers, errs := joinAll(t.Context(), st, n, network, change)
	for i, err := range errs {
		require.NoError(t, err, "worker %d", i)
	}
	t.Cleanup(func() {
		for _, w := range workers {
			require.NoError(t, w.Close())
		}
	})
	return workers
}

func joinAll(c context.Context, st store.Store, n int, network func(i int) transport.Network, change func(i int, cfg *Config)) ([]*Worker, []error) {
	workers, errs := make([]*Worker, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cfg := Config{Store: st, Rank: i, WorldSize: n, Token: testToken, JoinTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}
			if network != nil {
				cfg.Network, cfg.Listen = network(i), fmt.Sprintf("host%d:0", i)
			}
			if change != nil {
				change(i, &cfg)
			}
			workers[i], errs[i] = Join(c, cfg)
		})
	}
	wg.Wait()
	return workers, errs
}

// onSim gives every worker a host of one simulated network.
func onSim(net *simnet.Net) func(i int) transport.Network {
	return func(i int) transport.Network { return net.Host(fmt.Sprintf("host%d", i)) }
}
