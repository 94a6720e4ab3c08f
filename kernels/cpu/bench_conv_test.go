package cpu_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu"
)

// BenchmarkImages runs the instructions of a small convolutional net on 8×1×28×28, and some of a
// larger one. It reports the best of many runs too.
func BenchmarkImages(b *testing.B) {
	key := kernels.Type{Dtype: device.Int64, Shape: device.Shape{2}}
	same, half := kernels.Square(3, 1, 1), kernels.Square(2, 2, 0)
	for _, c := range []struct {
		name string
		i    kernels.Instr
		in   []kernels.Type
		flop int
	}{
		{"conv1", kernels.Conv2d{Window: same}, []kernels.Type{f32(8, 1, 28, 28), f32(16, 1, 3, 3)}, 2 * 8 * 16 * 28 * 28 * 9},
		{"conv1-gradw", kernels.Conv2dGradW{Window: same}, []kernels.Type{f32(8, 1, 28, 28), f32(8, 16, 28, 28)}, 2 * 8 * 16 * 28 * 28 * 9},
		{"conv2", kernels.Conv2d{Window: same}, []kernels.Type{f32(8, 16, 14, 14), f32(32, 16, 3, 3)}, 2 * 8 * 32 * 14 * 14 * 144},
		{"conv2-gradx", kernels.Conv2dGradX{Window: same, Height: 14, Width: 14}, []kernels.Type{f32(32, 16, 3, 3), f32(8, 32, 14, 14)}, 2 * 8 * 32 * 14 * 14 * 144},
		{"conv2-gradw", kernels.Conv2dGradW{Window: same}, []kernels.Type{f32(8, 16, 14, 14), f32(8, 32, 14, 14)}, 2 * 8 * 32 * 14 * 14 * 144},
		{"pool1", kernels.MaxPool2d{Window: half}, []kernels.Type{f32(8, 16, 28, 28)}, 0},
		{"pool1-grad", kernels.MaxPool2dGrad{Window: half}, []kernels.Type{f32(8, 16, 28, 28), f32(8, 16, 14, 14)}, 0},
		{"avg", kernels.AvgPool2d{Window: half}, []kernels.Type{f32(8, 16, 28, 28)}, 0},
		{"dropout", kernels.Dropout{P: 0.5}, []kernels.Type{f32(8, 16, 28, 28), key}, 0},
		{"bias-grad", kernels.Reduce{Axes: []int{0, 2, 3}}, []kernels.Type{f32(8, 16, 28, 28)}, 0},
		{"wide", kernels.Conv2d{Window: same}, []kernels.Type{f32(2, 64, 56, 56), f32(64, 64, 3, 3)}, 2 * 2 * 64 * 56 * 56 * 64 * 9},
		{"wide-gradw", kernels.Conv2dGradW{Window: same}, []kernels.Type{f32(2, 64, 56, 56), f32(2, 64, 56, 56)}, 2 * 2 * 64 * 56 * 56 * 64 * 9},
		{"deep", kernels.Conv2d{Window: same}, []kernels.Type{f32(2, 256, 14, 14), f32(256, 256, 3, 3)}, 2 * 2 * 256 * 14 * 14 * 256 * 9},
		{"deep-gradw", kernels.Conv2dGradW{Window: same}, []kernels.Type{f32(2, 256, 14, 14), f32(2, 256, 14, 14)}, 2 * 2 * 256 * 14 * 14 * 256 * 9},
		{"stem", kernels.Conv2d{Window: kernels.Square(7, 2, 3)}, []kernels.Type{f32(1, 3, 224, 224), f32(64, 3, 7, 7)}, 2 * 64 * 112 * 112 * 147},
		{"point", kernels.Conv2d{Window: kernels.Square(1, 1, 0)}, []kernels.Type{f32(2, 256, 14, 14), f32(256, 256, 1, 1)}, 2 * 2 * 256 * 14 * 14 * 256},
	} {
		b.Run(c.name, func(b *testing.B) {
			out, err := c.i.Infer(c.in)
			require.NoError(b, err)
			d := device.Host()
			var bufs []*device.Buffer
			for n, t := range append(out, c.in...) {
				buf, err := d.Alloc(t.Bytes())
				require.NoError(b, err)
				raw, err := buf.Host()
				require.NoError(b, err)
				if t.Dtype == device.Float32 {
					for k := range device.As[float32](raw) {
						device.As[float32](raw)[k] = float32((k*7+n)%11) - 5
					}
				}
				bufs = append(bufs, buf)
			}
			k, err := cpu.Backend{}.Prepare(c.i, c.in)
			require.NoError(b, err)
			best := time.Hour
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				require.NoError(b, k.Run(bufs[:1], bufs[1:]))
				best = min(best, time.Since(began))
			}
			b.ReportMetric(float64(best.Nanoseconds())/1e3, "best-µs")
			if c.flop > 0 {
				b.ReportMetric(float64(c.flop)/float64(best.Nanoseconds()), "GFLOP/s")
			}
			for _, buf := range bufs {
				require.NoError(b, buf.Release())
			}
		})
	}
}
