package gen

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/kerneltest"
)

// numbers are special values, some of a few units, and some of every magnitude.
func numbers(r *rand.Rand, d device.Dtype, n int) []float64 {
	inf := math.Inf(1)
	v := []float64{0, math.Copysign(0, -1), 1, -1, 2, -2, 3, -3, 0.5, -0.5, inf, -inf, math.NaN(), math.Pi, math.Pi / 2, 1e5, -1e5, 1e22, 89, -89, 88.5,
		104, -104, 710, -710, 709.8, -746, 0x1p-149, 0x1p-126, 0x1p-127, 0x1p-1074, 0x1p-1022, math.MaxFloat32, -math.MaxFloat32, math.MaxFloat64,
		1 + 0x1p-23, 1 - 0x1p-24, 5, 7, -7, 16777217, 4503599627370497}
	for len(v) < n {
		switch r.IntN(3) {
		case 0:
			v = append(v, r.NormFloat64()*5)
		case 1:
			v = append(v, r.NormFloat64()*math.Exp2(float64(r.IntN(60)-40)))
		default:
			if d == device.Float32 {
				v = append(v, float64(math.Float32frombits(r.Uint32())))
			} else {
				v = append(v, math.Float64frombits(r.Uint64()))
			}
		}
	}
	for k := range v {
		if d == device.Float32 {
			v[k] = float64(float32(v[k]))
		}
	}
	return v
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func gelu(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x * math.Erfc(-x/math.Sqrt2) / 2
}

func geluSlope(x float64) float64 {
	c := math.Erfc(-x/math.Sqrt2) / 2
	if math.IsInf(x, 0) {
		return c
	}
	return c + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
}

func sigmoid(x float64) float64 {
	if x < 0 {
		return math.Exp(x) / (1 + math.Exp(x))
	}
	return 1 / (1 + math.Exp(-x))
}

func TestFunctions(t *testing.T) {
	fns := map[kernels.UnaryFn]func(float64) float64{kernels.Exp: math.Exp, kernels.Log: math.Log, kernels.Sqrt: math.Sqrt, kernels.Tanh: math.Tanh,
		kernels.Sigmoid: sigmoid, kernels.Gelu: gelu, kernels.Abs: math.Abs, kernels.Ceil: math.Ceil, kernels.Floor: math.Floor,
		kernels.Sin: math.Sin, kernels.Cos: math.Cos, kernels.Log1p: math.Log1p, kernels.Expm1: math.Expm1, kernels.Softplus: softplus}
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		dev := newRig(t, 16)
		x := kerneltest.New(d, device.Shape{200000}, numbers(rand.New(rand.NewPCG(1, 1)), d, 200000)...)
		try := func(name string, i kernels.Instr, fn func(float64) float64, in ...kerneltest.Tensor) {
			got, err := kerneltest.RunOn(t, dev, i, []kernels.Type{x.Type}, in)
			require.NoError(t, err)
			worst, at, worstAbs, atAbs, bad := 0., 0., 0., 0., 0
			for k, v := range x.V {
				w, g := fn(v), got[0].V[k]
				if d == device.Float32 { w = float64(float32(w)) }
				if w == g || w != w && g != g { continue }
				if w!=w||g!=g||math.IsInf(w,0)||math.IsInf(g,0) { if bad < 5 { t.Logf("%v %v(%v)=%v want %v", d, name, v, g, w) }; bad++; continue }
				tiny := 0x1p-126
				if d == device.Float64 { tiny = 0x1p-1022 }
				if e := math.Abs(g-w)/math.Max(tiny,math.Abs(w)); e > worst { worst, at = e, v }
				if e := math.Abs(g-w)/math.Max(1,math.Abs(w)); e > worstAbs { worstAbs, atAbs = e, v }
			}
			t.Logf("%v %v: worst %.3g at %v (abs %.3g at %v) bad %d", d, name, worst, at, worstAbs, atAbs, bad)
		}
		for i, fn := range fns {
			try(i.String(), kernels.Unary{Fn: i}, fn, x)
		}
		try("GeluGrad", kernels.Binary{Fn: kernels.GeluGrad}, geluSlope, x, kerneltest.New(d, nil, 1))
	}
}
