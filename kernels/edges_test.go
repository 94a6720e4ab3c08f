package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/kerneltest"
)

func TestWhatIsNotFiniteTouchesOnlyWhatDependsOnIt(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 17))
	for range soak.Cases(150) {
		kerneltest.CheckNotFinite(t, device.Host(), r)
	}
}

// A row of one operand of causal attention is spoiled, and what does not depend on it must be what it was.
func TestWhatAQueryMayNotSeeIsNoBusinessOfIts(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 17))
	for n := range soak.Cases(60) {
		dtype := []device.Dtype{device.Float32, device.Float64}[r.IntN(2)]
		queries, more, e := 1+r.IntN(70), r.IntN(3), 1+r.IntN(20)
		in := make([]kerneltest.Tensor, 4) // queries, keys, values, and the result's gradient
		for k := range in {
			rows := queries
			if k == 1 || k == 2 {
				rows += more
			}
			in[k] = kerneltest.Few(r, dtype, 0, 1, rows, 1, e)
		}
		before := attendedAndBack(t, in)
		which := n % 4
		row := r.IntN(in[which].Shape[1])
		for range 2 {
			in[which].V[row*e+r.IntN(e)] = []float64{math.Inf(1), math.Inf(-1), math.NaN()}[r.IntN(3)]
		}
		after := attendedAndBack(t, in)
		touched := func(result, at int) bool { // of the result, and of the gradients of queries, keys and values
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
		for result := range after {
			for k, v := range after[result].V {
				if w := before[result].V[k]; !touched(result, k/e) {
					require.InDelta(t, w, v, 1e-4*(1+math.Abs(w)), "%v: operand %d, row %d of %d and %d: result %d, row %d", dtype, which, row, queries, more, result, k/e)
				}
			}
		}
	}
}

// attendedAndBack is what causal attention gives, and its gradients.
func attendedAndBack(t *testing.T, in []kerneltest.Tensor) []kerneltest.Tensor {
	t.Helper()
	run := func(i kernels.Instr, in []kerneltest.Tensor) []kerneltest.Tensor {
		var types []kernels.Type
		for _, x := range in {
			types = append(types, x.Type)
		}
		out, err := i.Infer(types)
		require.NoError(t, err)
		got, err := kerneltest.RunOn(t, device.Host(), i, out, in)
		require.NoError(t, err)
		return got
	}
	y := run(kernels.Attention{Causal: true}, in[:3])
	return append(y[:1:1], run(kernels.AttentionGrad{Causal: true}, append(in[:3:3], y[0], y[1], in[3]))...)
}

func TestAnInfinityInACornerIsNoBusinessOfTapsThatDoNotSeeIt(t *testing.T) {
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		x, gy := kerneltest.Few(rand.New(rand.NewPCG(1, 1)), d, 0, 1, 1, 3, 3), kerneltest.New(d, device.Shape{1, 1, 3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		x.V[0] = math.Inf(1)
		i := kernels.Conv2dGradW{Window: kernels.Window{Kernel: [2]int{3, 3}, Before: [2]int{1, 1}, After: [2]int{1, 1}}}
		out, err := i.Infer([]kernels.Type{x.Type, gy.Type})
		require.NoError(t, err)
		w, err := kerneltest.RunOn(t, device.Host(), i, out, []kerneltest.Tensor{x, gy})
		require.NoError(t, err)
		for tap, v := range w[0].V {
			require.Equal(t, tap/3 < 2 && tap%3 < 2, math.IsInf(v, 1), "tap %d is %v", tap, v) // the others see it from outside
			require.False(t, math.IsNaN(v), "tap %d", tap)
		}
	}
}
