package disttest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport/simnet"
)

// world is the workers of a job on a simulated network.
type world struct {
	net  *simnet.Net
	ws   []*rpc.Worker
	look *rpc.Func[struct{}, struct{}] // puts the pass that arrives into seen

	mu   sync.Mutex
	seen *ctx.Pass
}

var delays = simnet.Config{Seed: 1, MaxDelay: 5 * time.Millisecond}

// bubble runs a test with n workers that serve fns, on a clock of its own.
func bubble(t *testing.T, n int, cfg simnet.Config, run func(t *testing.T, w *world), fns ...rpc.Function) {
	bubbleWith(t, n, cfg, func(int, *rpc.Config) {}, run, fns...)
}

// bubbleWith is bubble with a configuration for each worker.
func bubbleWith(t *testing.T, n int, cfg simnet.Config, change func(i int, cfg *rpc.Config), run func(t *testing.T, w *world), fns ...rpc.Function) {
	synctest.Test(t, func(t *testing.T) {
		cfg.Logger = slog.New(slog.DiscardHandler)
		w := &world{net: simnet.New(cfg)}
		w.look = rpc.Define("look", func(c context.Context, _ struct{}) (struct{}, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = current(c)
			return struct{}{}, nil
		})
		w.ws = rpctest.WorldWith(t, w.net, n, func(i int, cfg *rpc.Config) {
			cfg.Functions = append([]rpc.Function{w.look}, fns...)
			change(i, cfg)
		})
		run(t, w)
	})
}

func name(i int) string { return fmt.Sprintf("worker%d", i) }

// part is a worker's part of the pass that c carries; its gradients, send and recv functions are as
// they were before.
func (w *world) part(t testing.TB, c context.Context, i int) *ctx.Pass { //nolint:revive // t is first in tests
	t.Helper()
	_, err := w.look.Call(ctx.NoGrad(c), name(i), struct{}{})
	require.NoError(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// pass runs fn in a pass of worker i, and checks that leaving it leaves nothing anywhere.
func (w *world) pass(t *testing.T, i int, fn func(c context.Context)) {
	t.Helper()
	before := device.Host().Stats().Live
	require.NoError(t, w.ws[i].Pass(t.Context(), func(c context.Context) error { fn(c); return nil }))
	w.requireNothingLeft(t, before)
}

func (w *world) requireNothingLeft(t *testing.T, before int64) {
	t.Helper()
	for _, worker := range w.ws {
		require.NoError(t, worker.Settle(t.Context()))
	}
	time.Sleep(time.Second) // of the bubble: references are given back without waiting for the answer
	synctest.Wait()         // for the ends of handlers whose answers are out
	for _, worker := range w.ws {
		require.Empty(t, worker.Passes(), worker.Name())
		require.Zero(t, worker.Owned(), worker.Name())
		for _, id := range worker.Devices().IDs() {
			if id != (device.ID{}) {
				require.Zero(t, must(worker.Devices().Get(id)).Stats().Live, "%v of %s", id, worker.Name())
			}
		}
	}
	require.Equal(t, before, device.Host().Stats().Live, "host buffers")
}

type pair struct{ A, B *autodiff.Tensor }

func apply(name string, f func(a, b *autodiff.Tensor) *autodiff.Tensor) *rpc.Func[pair, *autodiff.Tensor] {
	return rpc.Define(name, func(_ context.Context, in pair) (*autodiff.Tensor, error) { return f(in.A, in.B), nil })
}

func addFn() *rpc.Func[pair, *autodiff.Tensor]    { return apply("add", autodiff.Add) }
func mulFn() *rpc.Func[pair, *autodiff.Tensor]    { return apply("mul", autodiff.Mul) }
func matmulFn() *rpc.Func[pair, *autodiff.Tensor] { return apply("matmul", autodiff.MatMul) }

// must gives a call's result.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func param(v ...float64) *autodiff.Tensor { return autodiff.New(v).RequireGrad() }

func ones(shape ...int) *autodiff.Tensor { return autodiff.Ones(device.Float64, shape...) }

func values(t testing.TB, x *autodiff.Tensor) []float64 {
	t.Helper()
	require.NotNil(t, x)
	v, err := autodiff.Values[float64](x)
	require.NoError(t, err)
	return v
}

// requireGradients compares the gradients of a worker's part of a pass.
func requireGradients(t testing.TB, p *ctx.Pass, want map[*autodiff.Tensor][]float64) {
	t.Helper()
	have, err := p.Gradients()
	require.NoError(t, err)
	require.Len(t, have, len(want))
	for leaf, v := range want {
		require.InDeltaSlice(t, v, values(t, have[leaf]), 1e-9)
	}
}

func current(c context.Context) *ctx.Pass {
	p, _ := ctx.From(c)
	return p
}
