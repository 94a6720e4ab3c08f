package disttest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// parameterServer is worker 0 of five, with a parameter p that lies there.
type parameterServer struct {
	p     *autodiff.Tensor
	times *rpc.Func[*autodiff.Tensor, *autodiff.Tensor] // p·x
	grad  *rpc.Func[int, []float64]                     // of p, in the pass
}

func newParameterServer(n int) *parameterServer {
	s := &parameterServer{p: autodiff.Ones(device.Float64, n).RequireGrad()}
	s.times = rpc.Define("times", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.Mul(s.p, x), nil
	})
	s.grad = rpc.Define("grad", func(c context.Context, _ int) ([]float64, error) {
		grads, err := ctx.Gradients(c)
		if err != nil {
			return nil, err
		}
		return autodiff.Values[float64](grads[s.p])
	})
	return s
}

// pass runs some calls and backwards whose sum is known: the gradient of Σ p·x is x.
func (s *parameterServer) pass(c context.Context, w *rpc.Worker, n, seed int) error {
	return w.Pass(c, func(c context.Context) error {
		want := make([]float64, n)
		for round := range 1 + seed%3 {
			x := make([]float64, n)
			for i := range x {
				x[i] = float64(1 + (seed+i*round)%7)
				want[i] += x[i]
			}
			y, err := s.times.Call(c, "worker0", ctx.Own(c, autodiff.New(x)))
			if err != nil {
				return err
			}
			if err := ctx.Backward(c, autodiff.Sum(y)); err != nil {
				return err
			}
		}
		got, err := s.grad.Call(c, "worker0", 0)
		if err != nil {
			return err
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("gradient %v; expected %v", got, want)
		}
		return nil
	})
}

// TestSixtyFourPassesAtOnceAgainstOneParameterWorkerAreRightAndLeaveNothing goes over QUIC and
// shared memory, as in a job. WEFT_SOAK is for how long, by default half a second.
func TestSixtyFourPassesAtOnceAgainstOneParameterWorkerAreRightAndLeaveNothing(t *testing.T) {
	leak.Check(t)
	length := 500 * time.Millisecond
	if v := os.Getenv("WEFT_SOAK"); v != "" {
		var err error
		length, err = time.ParseDuration(v)
		require.NoError(t, err)
	}
	const n, trainers, each = 64, 4, 16
	s := newParameterServer(n)
	ws := loopback(t, 1+trainers, s.times, s.grad)
	before := device.Host().Stats().Live
	var passes atomic.Int64
	var heaps []uint64
	for quarter := range 4 {
		c, cancel := context.WithTimeout(t.Context(), length/4)
		var wg sync.WaitGroup
		for i := range trainers * each {
			wg.Go(func() {
				for round := 0; c.Err() == nil; round++ {
					if err := s.pass(t.Context(), ws[1+i%trainers], n, i+round+quarter); err != nil {
						t.Error(err)
						return
					}
					passes.Add(1)
				}
			})
		}
		wg.Wait()
		cancel()
		for _, w := range ws {
			require.NoError(t, w.Settle(t.Context()))
		}
		for _, w := range ws {
			require.Empty(t, w.Passes(), w.Name())
		}
		require.Equal(t, before, device.Host().Stats().Live)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heaps = append(heaps, m.HeapAlloc)
	}
	t.Logf("%d passes in %v; heap after each quarter: %d bytes", passes.Load(), length, heaps)
	require.Less(t, heaps[3], heaps[0]+4<<20)
}

// loopback joins n workers of this process over real links.
func loopback(t *testing.T, n int, fns ...rpc.Function) []*rpc.Worker {
	t.Helper()
	t.Setenv("WEFT_TOKEN", secrettest.Token("job"))
	st := store.NewMemory()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	ws, errs := make([]*rpc.Worker, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ws[i], errs[i] = rpc.Join(t.Context(), rpc.Config{Store: st, Rank: i, WorldSize: n, Functions: fns, Logger: slog.New(slog.DiscardHandler)})
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, w := range ws {
			if w != nil {
				require.NoError(t, w.Close())
			}
		}
	})
	for i, err := range errs {
		require.NoError(t, err, "worker %d", i)
	}
	return ws
}
