package rpc

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

var testToken, otherToken = secrettest.Token("job"), secrettest.Token("another job")

// world starts n workers in this process on one store. network gives worker i its network; nil
// means QUIC on loopback. When t ends the workers must have left nothing: no goroutine, no buffer.
func world(t testing.TB, n int, network func(i int) transport.Network, change func(i int, cfg *Config)) []*Worker {
	t.Helper()
	leak.Check(t)
	st := store.NewMemory()
	t.Cleanup(func() { _ = st.Close() })
	workers, errs := joinAll(t.Context(), st, n, network, change)
	closeAtEnd(t, workers) // also where one of them did not join, or what they left would hide why
	for i, err := range errs {
		require.NoError(t, err, "worker %d", i)
	}
	return workers
}

// sim is a world on a simulated network that delivers at once.
func sim(t testing.TB, n int, change func(i int, cfg *Config)) []*Worker {
	t.Helper()
	ws, _ := simWith(t, n, simnet.Config{}, change)
	return ws
}

func simWith(t testing.TB, n int, cfg simnet.Config, change func(i int, cfg *Config)) ([]*Worker, *simnet.Net) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	net := simnet.New(cfg)
	return world(t, n, onSim(net), change), net
}

func closeAtEnd(t testing.TB, workers []*Worker) {
	t.Cleanup(func() {
		for i, w := range workers {
			if w == nil {
				continue
			}
			require.NoError(t, w.Close())
			for _, d := range w.devices.IDs() {
				dev, err := w.devices.Get(d)
				require.NoError(t, err)
				if d != (device.ID{}) {
					require.Zero(t, dev.Stats().Live, "%v of worker %d", d, i)
				}
			}
			require.Empty(t, w.Passes())
		}
	})
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

func serve(fns ...Function) func(i int, cfg *Config) {
	return func(_ int, cfg *Config) { cfg.Functions = fns }
}

// journal is a log to look into.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) count(s string) int { return strings.Count(j.String(), s) }

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// eventually polls without a fixed wait; it is for what the garbage collector or another worker
// does in its own time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-end.C:
			require.Fail(t, "did not happen: "+what)
		}
	}
}

// collected is eventually for what references leave to the garbage collector.
func collected(t testing.TB, what string, ok func() bool) {
	t.Helper()
	eventually(t, what, func() bool { runtime.GC(); return ok() })
}

// owns waits until a worker keeps n values for references.
func owns(t testing.TB, w *Worker, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s owns %d", w.Name(), n), func() bool { return w.Owned() == n })
}
