package images

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/conv"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// TestSumsTapByTapAgreeWithProductsOfColumns compares the two ways to convolve, with every tile
// there is, the plain one included, over images that take more than one band or round, too.
func TestSumsTapByTapAgreeWithProductsOfColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	pair := func(from, n int) [2]int { return [2]int{from + r.IntN(n), from + r.IntN(n)} }
	for n := range soak.Cases(80) {
		w := kernels.Window{Kernel: pair(1, 4), Stride: pair(1, 3), Dilation: pair(1, 2), Before: pair(0, 4), After: pair(0, 4)}
		x := device.Shape{1 + r.IntN(3), 1 + r.IntN(3), 4 + r.IntN(9), 4 + r.IntN(9)}
		switch n % 80 {
		case 0: // several bands
			x = device.Shape{2, 1, 290 + r.IntN(9), 300}
		case 3: // a row of columns is more than a block
			w.Kernel, x = [2]int{2, 3}, device.Shape{1, 12, 4, 1100}
		case 1: // several rounds
			x = device.Shape{150, 2, 14, 14}
		case 2: // several rounds of sums, more steps than are done at once
			w.Kernel, x = [2]int{3, 3}, device.Shape{1, 12, 9, 9}
		}
		if _, err := w.Whole().Over(x[2], x[3]); err != nil {
			continue
		}
		compareConvolutions(t, w, x, 1+r.IntN(7), r)
	}
}

func compareConvolutions(t *testing.T, w kernels.Window, x device.Shape, o int, r *rand.Rand) {
	s := newSliding(w, x)
	f := device.Shape{o, x[1], w.Kernel[0], w.Kernel[1]}
	y := device.Shape{x[0], o, s.oh, s.ow}
	draw := func(s device.Shape) []float64 {
		v := make([]float64, s.Elems())
		for k := range v {
			v[k] = r.NormFloat64()
		}
		return v
	}
	xs, fs, gy := draw(x), draw(f), draw(y)
	run := func(b parallel.Body, out device.Shape, a, c []float64) []float64 {
		got := draw(out)
		require.NoError(t, b([][]byte{device.Bytes(got)}, [][]byte{device.Bytes(a), device.Bytes(c)}))
		return got
	}
	ft, yt, xt := kernels.Type{Dtype: device.Float64, Shape: f}, kernels.Type{Dtype: device.Float64, Shape: y}, kernels.Type{Dtype: device.Float64, Shape: x}
	want := [3][]float64{
		run(convBody[float64](kernels.Conv2d{Window: w}, []kernels.Type{xt, ft}, blas.All()["plain"]), y, xs, fs),
		run(convGradXBody[float64](kernels.Conv2dGradX{Window: w, Height: x[2], Width: x[3]}, []kernels.Type{ft, yt}, xt, blas.All()["plain"]), x, fs, gy),
		run(convGradWBody[float64](kernels.Conv2dGradW{Window: w}, []kernels.Type{xt, yt}, blas.All()["plain"]), f, xs, gy),
	}
	for _, k := range conv.All[float64]() {
		sums := [3]parallel.Body{summed(newDirect(k, s, o)), summed(directGradX[float64]{newDirectGradX(k, s, o)}), summed(newDirectGradW(k, s, o))}
		for range 2 { // in fresh memory, and in what the first run left
			got := [3][]float64{run(sums[0], y, xs, fs), run(sums[1], x, fs, gy), run(sums[2], f, xs, gy)}
			for n, name := range []string{"result", "gradient of images", "gradient of kernels"} {
				require.Len(t, got[n], len(want[n]))
				for at, v := range got[n] {
					if !(math.Abs(v-want[n][at]) <= 1e-10) { // require takes long, element by element
						require.InDelta(t, want[n][at], v, 1e-10, "%s: %s of %v over %v with %d kernels, at %d", k.Name, name, w, x, o, at)
					}
				}
			}
		}
	}
}

func TestEveryElementAndPositionIsInsideOrPadding(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		p := padded{h: r.IntN(6), w: r.IntN(6), step: [2]int{1 + r.IntN(3), 1 + r.IntN(3)}, before: [2]int{r.IntN(9) - 4, r.IntN(9) - 4}}
		axis, phase, first, n := r.IntN(2), r.IntN(3), r.IntN(4), r.IntN(8)
		from, to := p.within(axis, phase, first, n)
		size := [2]int{p.h, p.w}[axis]
		for k := range n {
			at := (k+first)*p.step[axis] + phase - p.before[axis]
			require.Equal(t, at >= 0 && at < size, k >= from && k < to, "%+v axis %d phase %d first %d: %d", p, axis, phase, first, k)
		}
		start, step, count := r.IntN(9)-4, 1+r.IntN(3), r.IntN(6)
		from, to = reached(start, step, size, count)
		for k := range count {
			at := start + k*step
			require.Equal(t, at >= 0 && at < size, k >= from && k < to)
		}
	}
}
