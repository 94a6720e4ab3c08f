package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// latencies collects how long each call took.
type latencies []time.Duration

// maxLatencies bounds what is kept: the first million are enough for a median.
const maxLatencies = 1 << 20

func (l *latencies) add(since time.Time) {
	if len(*l) < maxLatencies {
		*l = append(*l, time.Since(since))
	}
}

// at is the p-th percentile, in microseconds. It sorts.
func (l latencies) at(p int) float64 {
	slices.Sort(l)
	return float64(l[min(len(l)*p/100, len(l)-1)].Nanoseconds()) / 1e3
}

// report gives the median and the 99th percentile.
func (l latencies) report(b *testing.B, prefix string) {
	for _, p := range []int{50, 99} {
		b.ReportMetric(l.at(p), fmt.Sprintf("%sp%d-µs", prefix, p))
	}
}

// BenchmarkCall is a call to the other process and back: of a function that does nothing (one at a
// time, and 64 at once), and of one that adds two tensors.
func BenchmarkCall(b *testing.B) {
	overLanes(b, func(b *testing.B, w *rpc.Worker) {
		c := w.Context(b.Context())
		b.Run("empty", func(b *testing.B) {
			timed(b, func() error { _, err := empty.Call(c, peer, struct{}{}); return err })
		})
		b.Run("inflight=64", func(b *testing.B) { inFlight(b, w, 64) })
		b.Run("tensor=3x3", func(b *testing.B) {
			t := autodiff.Ones(device.Float32, 3, 3)
			timed(b, func() error { _, err := add.Call(c, peer, pair{t, t}); return err })
		})
	})
}

// timed runs the loop of one call at a time, after a few to warm up.
func timed(b *testing.B, call func() error) {
	for range 3 {
		require.NoError(b, call())
	}
	var took latencies
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		took.add(start)
	}
	took.report(b, "")
}

// inFlight keeps a number of empty calls under way; one iteration is one call.
func inFlight(b *testing.B, w *rpc.Worker, depth int) {
	c := w.Context(b.Context())
	window := make([]*rpc.Future[struct{}], depth)
	next := 0
	wait := func() {
		if f := window[next]; f != nil {
			if _, err := f.Wait(c); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		wait()
		window[next] = empty.Async(c, peer, struct{}{})
		next = (next + 1) % depth
	}
	b.StartTimer() // the last ones count too
	for range window {
		wait()
		next = (next + 1) % depth
	}
	b.StopTimer()
	perSecond(b, 1, "calls")
}

func TestCallsBetweenTwoProcessesGiveTheResult(t *testing.T) {
	overLanes(t, func(t *testing.T, w *rpc.Worker) {
		c := w.Context(t.Context())
		_, err := empty.Call(c, peer, struct{}{})
		require.NoError(t, err)
		n, err := numel.Call(c, peer, autodiff.Ones(device.Float32, 7, 11))
		require.NoError(t, err)
		require.Equal(t, 77, n)
		sum, err := add.Call(c, peer, pair{autodiff.New([]float32{1, 2}), autodiff.New([]float32{3, 5})})
		require.NoError(t, err)
		got, err := autodiff.Values[float32](sum)
		require.NoError(t, err)
		require.Equal(t, []float32{4, 7}, got)
	})
}
