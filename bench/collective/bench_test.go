package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
)

type operation func(c context.Context) error

// operations make what is measured, on arrays of so many bytes.
var operations = map[string]func(g *collective.Group, bytes int) operation{
	"AllReduce": onBuffers(func(c context.Context, g *collective.Group, x *device.Buffer) ([]*device.Buffer, error) {
		return one(g.AllReduced(c, collective.Sum, device.Float32, x))
	}),
	"AllReduceBuffers": func(g *collective.Group, bytes int) operation {
		x, err := device.Host().Alloc(bytes / 4 * 4)
		return func(c context.Context) error {
			if err != nil {
				return err
			}
			_, err := g.AllReduceBuffers(c, collective.Sum, device.Float32, x).Wait(c)
			return err
		}
	},
	"ReduceScatter": onBuffers(func(c context.Context, g *collective.Group, x *device.Buffer) ([]*device.Buffer, error) {
		return one(g.ReduceScattered(c, collective.Sum, device.Float32, x))
	}),
	"Broadcast": onBuffers(func(c context.Context, g *collective.Group, x *device.Buffer) ([]*device.Buffer, error) {
		return one(g.Broadcasted(c, device.Float32, x.Len()/4, x, 0))
	}),
	"AllGather": onParts(func(c context.Context, g *collective.Group, x []*device.Buffer) ([]*device.Buffer, error) {
		return g.AllGathered(c, device.Float32, x[g.Rank()])
	}),
	"AllToAll": onParts(func(c context.Context, g *collective.Group, x []*device.Buffer) ([]*device.Buffer, error) {
		return g.Exchanged(c, device.Float32, x)
	}),
	"AllReduceBFloat16": narrow(false),
	"AllReduceInt8":     narrow(true),
	"AllReduceSlice": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4)
		return func(c context.Context) error { return collective.AllReduce(c, g, x, collective.Sum) }
	},
	"BroadcastSlice": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4)
		return func(c context.Context) error { return collective.Broadcast(c, g, x, 0) }
	},
	"AllGatherSlice": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4/g.Size())
		return func(c context.Context) error { _, err := collective.AllGather(c, g, x); return err }
	},
	"ReduceScatterSlice": func(g *collective.Group, bytes int) operation {
		x := make([]float32, bytes/4)
		return func(c context.Context) error { _, err := collective.ReduceScatter(c, g, x, collective.Sum); return err }
	},
	"AllToAllSlice": func(g *collective.Group, bytes int) operation {
		x := make([][]float32, g.Size())
		for r := range x {
			x[r] = make([]float32, bytes/4/g.Size())
		}
		return func(c context.Context) error { _, err := collective.AllToAll(c, g, x); return err }
	},
	"PlainMLP":     plainMLP,
	"ReplicateMLP": replicateMLP,
	"Barrier":      func(g *collective.Group, _ int) operation { return g.Barrier },
}

// handed is an operation that takes buffers, and gives new ones.
type handed[In any] func(c context.Context, g *collective.Group, in In) ([]*device.Buffer, error)

// onBuffers makes an operation on one buffer of so many bytes.
func onBuffers(do handed[*device.Buffer]) func(g *collective.Group, bytes int) operation {
	return onParts(func(c context.Context, g *collective.Group, x []*device.Buffer) ([]*device.Buffer, error) {
		return do(c, g, x[0])
	}, 1)
}

// onParts makes an operation on buffers of so many bytes together: a buffer for each member, or as
// many as are said.
func onParts(do handed[[]*device.Buffer], parts ...int) func(g *collective.Group, bytes int) operation {
	return func(g *collective.Group, bytes int) operation {
		x := make([]*device.Buffer, append(parts, g.Size())[0])
		for r := range x {
			var err error
			if x[r], err = device.Host().Alloc(bytes / 4 / len(x) * 4); err != nil {
				return func(context.Context) error { return err }
			}
		}
		return func(c context.Context) error {
			all, err := do(c, g, x)
			for _, y := range all {
				err = errors.Join(err, y.Release())
			}
			return err
		}
	}
}

func one(b *device.Buffer, err error) ([]*device.Buffer, error) {
	if err != nil {
		return nil, err
	}
	return []*device.Buffer{b}, nil
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
						took, processor, err := run(g, o)
						require.NoError(b, err)
						var all time.Duration
						for _, one := range took {
							all += one
						}
						slices.Sort(took)
						b.ReportMetric(float64(all.Nanoseconds())/float64(b.N), "ns/op") // without what prepares it
						b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns/op")
						b.ReportMetric(float64(took[len(took)/10].Nanoseconds()), "p10-ns/op")
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

// Those of buffers give new ones; those of slices are in place, or give slices.
func BenchmarkAllReduce(b *testing.B)          { measure(b, "AllReduce", sizes...) }
func BenchmarkAllReduceSlice(b *testing.B)     { measure(b, "AllReduceSlice", sizes...) }
func BenchmarkAllReduceBuffers(b *testing.B)   { measure(b, "AllReduceBuffers", sizes...) }
func BenchmarkAllReduceBFloat16(b *testing.B)  { measure(b, "AllReduceBFloat16", sizes...) }
func BenchmarkAllReduceInt8(b *testing.B)      { measure(b, "AllReduceInt8", sizes...) }
func BenchmarkBroadcast(b *testing.B)          { measure(b, "Broadcast", sizes...) }
func BenchmarkBroadcastSlice(b *testing.B)     { measure(b, "BroadcastSlice", sizes...) }
func BenchmarkAllGather(b *testing.B)          { measure(b, "AllGather", sizes...) }
func BenchmarkAllGatherSlice(b *testing.B)     { measure(b, "AllGatherSlice", sizes...) }
func BenchmarkReduceScatter(b *testing.B)      { measure(b, "ReduceScatter", sizes...) }
func BenchmarkReduceScatterSlice(b *testing.B) { measure(b, "ReduceScatterSlice", sizes...) }
func BenchmarkAllToAll(b *testing.B)           { measure(b, "AllToAll", sizes...) }
func BenchmarkAllToAllSlice(b *testing.B)      { measure(b, "AllToAllSlice", sizes...) }
func BenchmarkBarrier(b *testing.B)            { measure(b, "Barrier", 0) }

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
					_, _, err = run(g, o)
					require.NoError(t, err, "%s of %d bytes", op, bytes)
				}
			}
		})
	}
}
