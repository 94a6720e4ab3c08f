package compile

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatAGPUApproximatesIsOffByAsMuchAsItMayBeAndNoMore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for op, most := range map[string]float64{"rcp": 1, "sqrt": 1, "ex2": 2, "rsqrt": 2.2, "div": 2, "tanh": 1 << 13} { // units in the last place
		exact := map[string]func(a, b float64) float64{
			"rcp": func(a, _ float64) float64 { return 1 / a }, "sqrt": func(a, _ float64) float64 { return math.Sqrt(a) },
			"ex2": func(a, _ float64) float64 { return math.Exp2(a) }, "rsqrt": func(a, _ float64) float64 { return 1 / math.Sqrt(a) },
			"div": func(a, b float64) float64 { return a / b }, "tanh": func(a, _ float64) float64 { return math.Tanh(a) },
		}[op]
		f, wrong, worst := approximated(op, exact), 0, 0.0
		for range 10_000 {
			a, b := float64(float32(r.ExpFloat64()*10+0.001)), float64(float32(r.ExpFloat64()+0.001))
			got, want := f(a, b), exact(a, b)
			_, exp := math.Frexp(want)
			off := math.Abs(got-want) / math.Ldexp(1, exp-24)
			if worst = max(worst, off); off > 0.5 {
				wrong++
			}
			require.Equal(t, got, f(a, b), "it is the same each time")
		}
		require.LessOrEqual(t, worst, most, op)
		require.Greater(t, worst, 0.99*min(most, 2), op)
		require.Greater(t, wrong, 4000, op)
	}
	ex2, lg2 := approximated("ex2", func(a, _ float64) float64 { return math.Exp2(a) }), approximated("lg2", func(a, _ float64) float64 { return math.Log2(a) })
	for _, a := range []float64{0, 1, -3, -200, 200} {
		require.Equal(t, math.Exp2(a), ex2(a, 0))
	}
	require.True(t, math.IsInf(lg2(0, 0), -1) && math.IsNaN(lg2(-1, 0)) && math.IsInf(ex2(5000, 0), 1))
	require.InDelta(t, math.Log2(1.001), lg2(1.001, 0), math.Exp2(-22), "near 1 the error is not a share of the result")
}

func TestTheReciprocalOfHalfANumberIsHalfANumber(t *testing.T) {
	require.Equal(t, 0.5, reciprocal64(2))
	third := reciprocal64(3)
	require.InEpsilon(t, 1./3, third, 0x1p-20)
	require.NotEqual(t, 1./3, third)
	require.Zero(t, math.Float64bits(third)&math.MaxUint32)
	require.True(t, math.IsInf(reciprocal64(0x1p-1030), 1), "what is below the normal numbers is 0")
	require.True(t, math.Signbit(reciprocal64(math.Inf(-1))))
}
