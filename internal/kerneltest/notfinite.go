package kerneltest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Few are small numbers, of which some are not finite.
func Few(r *rand.Rand, d device.Dtype, n int, shape ...int) Tensor {
	t := New(d, shape, make([]float64, device.Shape(shape).Elems())...)
	for k := range t.V {
		t.V[k] = float64(r.IntN(5) - 2) // many zeros
	}
	for range min(n, len(t.V)) {
		t.V[r.IntN(len(t.V))] = []float64{math.Inf(1), math.Inf(-1), math.NaN()}[r.IntN(3)]
	}
	return t
}

// CheckNotFinite draws and checks a convolution, its gradients, pools and a product of numbers that
// are not all finite: what is not may touch only what depends on it.
func CheckNotFinite(t testing.TB, d device.Device, r *rand.Rand) {
	t.Helper()
	dtype := []device.Dtype{device.Float32, device.Float64}[r.IntN(2)]
	bad := func() int { return r.IntN(3) }
	w := kernels.Window{Kernel: [2]int{1 + r.IntN(3), 1 + r.IntN(3)}, Stride: [2]int{1 + r.IntN(2), 1 + r.IntN(2)},
		Dilation: [2]int{1 + r.IntN(2), 1 + r.IntN(2)}, Before: [2]int{r.IntN(3), r.IntN(3)}, After: [2]int{r.IntN(3), r.IntN(3)}}
	n, c, o, h, wide := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(6), 5+r.IntN(6), 5+r.IntN(20)
	x, filter := Few(r, dtype, bad(), n, c, h, wide), Few(r, dtype, bad(), o, c, w.Kernel[0], w.Kernel[1])
	out, err := kernels.Conv2d{Window: w}.Infer([]kernels.Type{x.Type, filter.Type})
	require.NoError(t, err)
	gy := Few(r, dtype, bad(), out[0].Shape...)
	Check(t, d, kernels.Conv2d{Window: w}, x, filter)
	Check(t, d, kernels.Conv2dGradX{Window: w, Height: h, Width: wide}, filter, gy)
	Check(t, d, kernels.Conv2dGradW{Window: w}, x, gy)
	pool := kernels.Window{Kernel: [2]int{2, 2}, Stride: [2]int{2, 2}}
	Check(t, d, kernels.MaxPool2d{Window: pool}, x)
	Check(t, d, kernels.AvgPool2d{Window: pool}, x)

	m, k, p := 1+r.IntN(40), 1+r.IntN(40), 1+r.IntN(40)
	i, a, b := kernels.MatMul{TransA: r.IntN(2) == 0, TransB: r.IntN(2) == 0}, []int{m, k}, []int{k, p}
	if i.TransA {
		a = []int{k, m}
	}
	if i.TransB {
		b = []int{p, k}
	}
	Check(t, d, i, Few(r, dtype, bad(), a...), Few(r, dtype, bad(), b...))
}

// CheckUnseen spoils a row of one operand of causal attention, of some queries and so many more
// keys, with heads of an extent. What does not depend on that row must be what it was, and sums
// over it must not be finite. Instructions are run by `run`.
func CheckUnseen(t testing.TB, r *rand.Rand, d device.Dtype, queries, more, extent int, run func(kernels.Instr, ...Tensor) []Tensor) {
	t.Helper()
	in := make([]Tensor, 4) // queries, keys, values, and the result's gradient
	for k := range in {
		rows := queries
		if k == 1 || k == 2 {
			rows += more
		}
		in[k] = Few(r, d, 0, 1, rows, 1, extent)
	}
	attend := func() []Tensor { // the result, and the gradients of queries, keys and values
		y := run(kernels.Attention{Causal: true}, in[:3]...)
		return append(y[:1:1], run(kernels.AttentionGrad{Causal: true}, append(in[:3:3], y[0], y[1], in[3])...)...)
	}
	before := attend()
	which := r.IntN(4)
	row := r.IntN(in[which].Shape[1])
	spoilt := map[int]bool{} // columns
	for range 2 {
		col := r.IntN(extent)
		spoilt[col] = true
		in[which].V[row*extent+col] = []float64{math.Inf(1), math.Inf(-1), math.NaN()}[r.IntN(3)]
	}
	after := attend()
	touched := func(result, at int) bool {
		if which == 0 || which == 3 { // a query: the keys that it sees
			if result < 2 {
				return at == row && (which == 0 || result == 1)
			}
			return at <= row+more
		}
		if result < 2 { // a key or value: the queries that see it, the last of which sees all
			return at+more >= row
		}
		return result == 2 || which == 1
	}
	summed := map[int]int{2: 0, 3: 3} // values make results, and the result's gradient makes that of values
	for result := range after {
		for k, v := range after[result].V {
			if of, ok := summed[which]; ok && of == result && touched(result, k/extent) && spoilt[k%extent] {
				require.True(t, math.IsNaN(v) || math.IsInf(v, 0), "%v: operand %d, row %d of %d and %d: result %d, row %d is %v", d, which, row, queries, more, result, k/extent, v)
			}
			if w := before[result].V[k]; !touched(result, k/extent) {
				require.InDelta(t, w, v, 1e-4*(1+math.Abs(w)), "%v: operand %d, row %d of %d and %d: result %d, row %d", d, which, row, queries, more, result, k/extent)
			}
		}
	}
}
