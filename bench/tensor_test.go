package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc"
)

// BenchmarkTensor is a tensor going to the other process. Plain, it is the same tensor every time
// and the callee looks at its shape alone, which is what the peers' tables measure: a lane that
// shares memory then copies nothing. As fresh, a tensor is made for every call, all of it is
// written here and all of it read there, in a pass that frees it at both ends: memory's own speed
// counts on every lane.
func BenchmarkTensor(b *testing.B) {
	overLanes(b, func(b *testing.B, w *rpc.Worker) {
		sizes := []int{1, 16, 256} // MiB
		if testing.Short() {
			sizes = sizes[:2]
		}
		for _, mib := range sizes {
			b.Run(fmt.Sprintf("bytes=%dMiB", mib), func(b *testing.B) {
				c, t := w.Context(b.Context()), autodiff.Ones(device.Float32, mib<<18)
				timed(b, func() error { _, err := numel.Call(c, peer, t); return err })
				perSecond(b, float64(mib<<20)/1e9, "GB")
			})
		}
		for _, mib := range sizes {
			b.Run(fmt.Sprintf("fresh/bytes=%dMiB", mib), func(b *testing.B) {
				seed := uint64(0)
				timed(b, func() error { seed++; return fresh(b.Context(), w, mib<<20, seed) })
				perSecond(b, float64(mib<<20)/1e9, "GB")
			})
		}
	})
}

// fresh sends a tensor of that many bytes that nobody has seen, and compares what the callee read
// with what was written.
func fresh(c context.Context, w *rpc.Worker, bytes int, seed uint64) error {
	return w.Pass(c, func(c context.Context) error {
		c = ctx.NoGrad(c)
		buf, err := device.Host().Alloc(bytes)
		if err != nil {
			return err
		}
		raw, err := buf.Host()
		if err != nil {
			return errors.Join(err, buf.Release())
		}
		var want uint64
		words := device.As[int64](raw)
		for i := range words {
			v := seed + uint64(i)
			words[i] = int64(v)
			want ^= v
		}
		t := ctx.Own(c, autodiff.Wrap(kernels.Type{Dtype: device.Int64, Shape: device.Shape{len(words)}}, buf, nil))
		got, err := readAll.Call(c, peer, t)
		if err == nil && got != want {
			err = fmt.Errorf("the callee read %x; expected %x", got, want)
		}
		return err
	})
}

// readAll combines all elements of an int64 tensor.
var readAll = rpc.Define("read-all", func(_ context.Context, t *autodiff.Tensor) (sum uint64, _ error) {
	buf, err := t.Acquire()
	if err != nil {
		return 0, err
	}
	raw, err := buf.Host()
	for _, v := range device.As[int64](raw) {
		sum ^= uint64(v)
	}
	return sum, errors.Join(err, buf.Release())
})

// BenchmarkCallWhileTensorsFlow is an empty call, one at a time, while gigabytes go to the same
// worker: one iteration is as many as it takes for 5120 calls, after 5120 calls with nothing else
// under way. The ratios are what the tensors cost the small calls. With -short it is megabytes and
// a few calls, to see that it runs.
func BenchmarkCallWhileTensorsFlow(b *testing.B) {
	overLanes(b, func(b *testing.B, w *rpc.Worker) {
		whole := 1024 // MiB
		if testing.Short() {
			whole = 32
		}
		for _, mib := range []int{16, whole} {
			b.Run(fmt.Sprintf("bytes=%dMiB", mib), func(b *testing.B) { whileTensorsFlow(b, w, mib, whole) })
		}
	})
}

func whileTensorsFlow(b *testing.B, w *rpc.Worker, mib, whole int) {
	c, t := w.Context(b.Context()), autodiff.Ones(device.Float32, mib<<18)
	var idle, busy latencies
	var flowing time.Duration
	flows := 0
	samples := 5 * whole // of calls with and without tensors, at least, so that a hundredth of them is many
	call := func(into *latencies) {
		start := time.Now()
		_, err := empty.Call(c, peer, struct{}{})
		require.NoError(b, err)
		into.add(start)
	}
	flow := func() chan error {
		done := make(chan error, 1)
		go func() {
			start := time.Now()
			var err error
			for sent := 0; sent < whole && err == nil; sent += mib {
				_, err = numel.Call(c, peer, t)
			}
			flowing += time.Since(start)
			done <- err
		}()
		return done
	}
	require.NoError(b, <-flow()) // warm
	flowing = 0
	for b.Loop() {
		for range samples {
			call(&idle)
		}
		for least := len(busy) + samples; ; {
			for done, more := flow(), true; more; {
				select {
				case err := <-done:
					require.NoError(b, err)
					more = false
				default:
					call(&busy)
				}
			}
			flows++
			if len(busy) >= least {
				break
			}
		}
	}
	idle.report(b, "idle-")
	busy.report(b, "")
	b.ReportMetric(busy.at(50)/idle.at(50), "p50-ratio")
	b.ReportMetric(busy.at(99)/idle.at(99), "p99-ratio")
	b.ReportMetric(float64(flows)*float64(whole<<20)/1e9/flowing.Seconds(), "GB/s")
}

func TestATensorThatNobodyHasSeenArrivesWhole(t *testing.T) {
	overLanes(t, func(t *testing.T, w *rpc.Worker) {
		for i, bytes := range []int{8, 64 << 10, 1 << 20, 3<<20 + 8} {
			require.NoError(t, fresh(t.Context(), w, bytes, uint64(i)))
		}
		require.NoError(t, w.Settle(t.Context()))
		require.Empty(t, w.Passes())
	})
}
