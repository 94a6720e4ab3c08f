package collective

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
)

type operation func(c context.Context) error

// operations make what is measured, on arrays of so many bytes.
var operations = map[string]func(g *collective.Group, bytes int) operation{
	"AllReduceSlice": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4)
		return func(c context.Context) error { return collective.AllReduce(c, g, x, collective.Sum) }
	},
	"AllReduce": func(g *collective.Group, bytes int) operation {
		x, err := device.Host().Alloc(bytes)
		if err != nil {
			return func(context.Context) error { return err }
		}
		return func(c context.Context) error {
			y, err := g.AllReduced(c, collective.Sum, device.Float32, x)
			if err != nil {
				return err
			}
			return y.Release()
		}
	},
	"AllReduceBFloat16": narrow(false),
	"AllReduceInt8":     narrow(true),
	"Broadcast": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4)
		return func(c context.Context) error { return collective.Broadcast(c, g, x, 0) }
	},
	"AllGather": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4/g.Size())
		return func(c context.Context) error { _, err := collective.AllGather(c, g, x); return err }
	},
	"ReduceScatter": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4)
		return func(c context.Context) error { _, err := collective.ReduceScatter(c, g, x, collective.Sum); return err }
	},
	"AllToAll": func(g *collective.Group, bytes int) operation {
		x := make([][]float32, g.Size())
		for r := range x {
			x[r] = make([]float32, bytes/4/g.Size())
		}
		return func(c context.Context) error { _, err := collective.AllToAll(c, g, x); return err }
	},
	"Barrier": func(g *collective.Group, _ int) operation { return g.Barrier },
}

// narrow makes sums of float32 that travel in fewer bits.
func narrow(int8s bool) func(g *collective.Group, bytes int) operation {
	return func(g *collective.Group, bytes int) operation {
		x, n := make([]float32, bytes/4), collective.Narrow{Int8: int8s}
		return func(c context.Context) error { return n.AllReduce(c, g, x, collective.Sum) }
	}
}

func measure(b *testing.B, op string, sizes ...int) {
	for _, size := range []int{2, 4} {
		for _, lane := range []string{transport.LaneLocal, transport.LaneBulk, transport.LaneQUIC} {
			b.Run(fmt.Sprintf("p=%d/lane=%s", size, lane), func(b *testing.B) {
				g := start(b, size, lane)
				for _, bytes := range sizes {
					b.Run("bytes="+human(bytes), func(b *testing.B) {
						o := order{op, bytes, b.N}
						_, err := collective.Agree(b.Context(), g, o)
						require.NoError(b, err)
						b.SetBytes(int64(bytes))
						b.ResetTimer()
						processor, err := run(g, o)
						require.NoError(b, err)
						b.ReportMetric(float64(processor.Microseconds())/float64(b.N), "cpu-µs/op")
					})
				}
			})
		}
	}
}

func human(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprint(n)
}

var sizes = []int{4 << 10, 64 << 10, 1 << 20, 16 << 20}

func BenchmarkAllReduce(b *testing.B)         { measure(b, "AllReduce", sizes...) }      // of buffers, to new ones
func BenchmarkAllReduceSlice(b *testing.B)    { measure(b, "AllReduceSlice", sizes...) } // in place
func BenchmarkAllReduceBFloat16(b *testing.B) { measure(b, "AllReduceBFloat16", sizes...) }
func BenchmarkAllReduceInt8(b *testing.B)     { measure(b, "AllReduceInt8", sizes...) }
func BenchmarkBroadcast(b *testing.B)         { measure(b, "Broadcast", sizes...) }
func BenchmarkAllGather(b *testing.B)         { measure(b, "AllGather", sizes...) }
func BenchmarkReduceScatter(b *testing.B)     { measure(b, "ReduceScatter", sizes...) }
func BenchmarkAllToAll(b *testing.B)          { measure(b, "AllToAll", sizes...) }
func BenchmarkBarrier(b *testing.B)           { measure(b, "Barrier", 0) }

// What is measured between processes is right.
func TestProcessesSumOverEveryLane(t *testing.T) {
	for _, lane := range []string{transport.LaneLocal, transport.LaneBulk, transport.LaneQUIC} {
		t.Run("lane="+lane, func(t *testing.T) {
			g := start(t, 3, lane)
			for op := range operations {
				for _, bytes := range []int{0, 4 << 10, 1 << 20} {
					o := order{op, bytes, 2}
					_, err := collective.Agree(t.Context(), g, o)
					require.NoError(t, err)
					_, err = run(g, o)
					require.NoError(t, err, "%s of %d bytes", op, bytes)
				}
			}
		})
	}
}
