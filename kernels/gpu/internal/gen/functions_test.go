package gen

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/kerneltest/exact"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
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

func softsign(x float64) float64 {
	if math.IsInf(x, 0) {
		return math.Copysign(1, x)
	}
	return x / (1 + math.Abs(x))
}

// gelu is off by as much as the rounding of x/√2 makes, far out.
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

// accuracy is by how much a function may be off: of the value, or of least where the value is
// smaller.
type accuracy struct{ of, least [2]float64 } // in float32 and float64

func TestFunctionsAreAccurate(t *testing.T) {
	normal := accuracy{[2]float64{5e-7, 1e-14}, [2]float64{0x1p-126, 0x1p-1021}}
	exact := accuracy{}
	// Beside zeros that are not at 0 the error is of the terms that cancel; what is next to nothing
	// may be nothing in float32.
	cancels := func(least float64) accuracy { return accuracy{normal.of, [2]float64{least, least}} }
	table := map[kernels.Instr]struct {
		of func(float64) float64
		accuracy
	}{
		kernels.Unary{Fn: kernels.Exp}: {math.Exp, normal}, kernels.Unary{Fn: kernels.Log}: {math.Log, normal},
		kernels.Unary{Fn: kernels.Tanh}: {math.Tanh, normal}, kernels.Unary{Fn: kernels.Sigmoid}: {sigmoid, cancels(1e-31)},
		kernels.Unary{Fn: kernels.Log1p}: {math.Log1p, normal}, kernels.Unary{Fn: kernels.Expm1}: {math.Expm1, normal},
		kernels.Unary{Fn: kernels.Softsign}: {softsign, normal},
		kernels.Unary{Fn: kernels.Softplus}: {softplus, normal}, kernels.Unary{Fn: kernels.Gelu}: {gelu, accuracy{[2]float64{1e-6, 4e-13}, [2]float64{1e-36, 0x1p-1021}}},
		kernels.Unary{Fn: kernels.Sin}: {math.Sin, cancels(1e-2)}, kernels.Unary{Fn: kernels.Cos}: {math.Cos, cancels(1e-2)},
		kernels.Unary{Fn: kernels.Sqrt}: {math.Sqrt, exact}, kernels.Unary{Fn: kernels.Abs}: {math.Abs, exact},
		kernels.Unary{Fn: kernels.Ceil}: {math.Ceil, exact}, kernels.Unary{Fn: kernels.Floor}: {math.Floor, exact},
		kernels.Unary{Fn: kernels.Neg}:  {func(x float64) float64 { return -x }, exact},
		kernels.Unary{Fn: kernels.Relu}: {func(x float64) float64 { return max(x, 0) }, exact}, kernels.Binary{Fn: kernels.GeluGrad}: {geluSlope, cancels(1)},
	}
	for fn := range kernels.UnaryFn(kernels.UnaryFns) {
		if fn != kernels.Scale && fn != kernels.Shift { // which are operators of PTX with a constant
			require.Contains(t, table, kernels.Unary{Fn: fn}, "the table has no row of %v", fn)
		}
	}
	for fn, f := range table {
		t.Run(fn.String(), func(t *testing.T) {
			for k, d := range []device.Dtype{device.Float32, device.Float64} {
				n := soak.Cases(3000)
				x := kerneltest.New(d, device.Shape{n}, numbers(rand.New(rand.NewPCG(1, 1)), d, n)...)
				in := []kerneltest.Tensor{x}
				if fn == (kernels.Binary{Fn: kernels.GeluGrad}) {
					in = append(in, kerneltest.New(d, nil, 1))
				}
				got, err := kerneltest.RunOn(t, newRig(t, writer{}), fn, []kernels.Type{x.Type}, in)
				require.NoError(t, err)
				for at, v := range x.V {
					if d == device.Float64 && (math.Abs(v) < 0x1p-1022 || math.Abs(v) > 709) {
						continue // where not all of package math is right
					}
					w, g := f.of(v), got[0].V[at]
					if d == device.Float32 {
						w = float64(float32(w))
					}
					if !(w == g || w != w && g != g || math.Abs(g-w) <= f.accuracy.of[k]*max(f.least[k], math.Abs(w))) {
						require.Failf(t, "inaccurate", "%v of %v %g is %g, want %g", fn, d, v, g, w)
					}
				}
			}
		})
	}
}

func TestExponentialsAndLogarithmsOfExtremesAreRight(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		fn   kernels.UnaryFn
		x, y []float64
	}{
		{kernels.Exp, []float64{709.78, 709.79, -745.1, -746, inf, -inf}, []float64{1.7928227943945155e308, inf, 5e-324, 0, inf, 0}},
		{kernels.Log, []float64{5e-324, 0x1p-1040, math.MaxFloat64}, []float64{-744.4400719213812, -720.8730677823449, 709.782712893384}},
		{kernels.Log1p, []float64{math.MaxFloat64, -1, -2, 1e-300}, []float64{709.782712893384, -inf, math.NaN(), 1e-300}},
		{kernels.Expm1, []float64{709.78, 710, -800, 1e-300}, []float64{1.7928227943945155e308, inf, -1, 1e-300}},
		{kernels.Gelu, []float64{math.MaxFloat64, -1e300, -inf, inf}, []float64{math.MaxFloat64, 0, 0, inf}},
		{kernels.Softsign, []float64{math.MaxFloat64, -inf, inf, 5e-324, -1e-300}, []float64{1, -1, 1, 5e-324, -1e-300}},
		{kernels.Sin, []float64{1e22, 0x1p1000, 6381956970095103 * 0x1p797, inf}, []float64{-0.8522008497671888, -0.15920170308624246, 1, math.NaN()}},
		{kernels.Cos, []float64{1e22, 0x1p1000, 6381956970095103 * 0x1p797, inf}, []float64{0.5232147853951389, 0.9872460775989135, -4.687165924254623e-19, math.NaN()}},
	} {
		x := kerneltest.New(device.Float64, device.Shape{len(c.x)}, c.x...)
		got, err := kerneltest.RunOn(t, newRig(t, writer{}), kernels.Unary{Fn: c.fn}, []kernels.Type{x.Type}, []kerneltest.Tensor{x})
		require.NoError(t, err)
		for k, w := range c.y {
			g := got[0].V[k]
			require.True(t, g == w || g != g && w != w || math.Abs(g-w) <= 1e-13*math.Abs(w), "%v(%g) is %g, want %g", c.fn, c.x[k], g, w)
		}
	}
}

func TestLogarithmsExponentialsAndPowersOfFloat64AreWithinTwoUnitsOfTheLastPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	n := soak.Cases(1000)
	run := func(i kernels.Instr, in ...[]float64) []float64 {
		var ts []kerneltest.Tensor
		for _, v := range in {
			ts = append(ts, kerneltest.New(device.Float64, device.Shape{n}, v...))
		}
		got, err := kerneltest.RunOn(t, newRig(t, writer{}), i, []kernels.Type{ts[0].Type}, ts)
		require.NoError(t, err)
		return got[0].V
	}
	x, e, y := make([]float64, n), make([]float64, n), make([]float64, n)
	for k := range x {
		x[k] = exact.AnyPositive(r)
		y[k] = (r.Float64() - 0.51) * 1460 / math.Log(max(x[k], 0x1p-1022)) // the power is anything from 0 to infinity
		if math.IsInf(y[k], 0) || k%2 == 0 {
			y[k] = math.Round(min(max(y[k], -1e9), 1e9))
		}
		if e[k] = (r.Float64() - 0.51) * 1460; k%4 == 0 {
			e[k] = 709 + r.Float64() // about where it becomes infinite
		}
	}
	log, exp, pow := run(kernels.Unary{Fn: kernels.Log}, x), run(kernels.Unary{Fn: kernels.Exp}, e), run(kernels.Binary{Fn: kernels.Pow}, x, y)
	var most [3]float64
	for k := range x {
		l := exact.Log(x[k])
		for fn, off := range []float64{exact.Ulps(log[k], l), exact.Ulps(exp[k], exact.Exp(exact.Float(e[k]))), exact.Ulps(pow[k], exact.Exp(l.Mul(l, exact.Float(y[k]))))} {
			require.LessOrEqual(t, off, 2.0, "log %v = %v; exp %v = %v; %v to the %v = %v", x[k], log[k], e[k], exp[k], x[k], y[k], pow[k])
			most[fn] = max(most[fn], off)
		}
	}
	t.Logf("log is off by %.3f, exp by %.3f, pow by %.3f", most[0], most[1], most[2])
}

func TestPowersOfSpecialNumbersAreThoseOfPackageMath(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for k, d := range []device.Dtype{device.Float32, device.Float64} {
		some := numbers(r, d, 50+soak.Cases(30))
		n := len(some)
		x, y := kerneltest.New(d, device.Shape{n, 1}, some...), kerneltest.New(d, device.Shape{n}, some...)
		got, err := kerneltest.RunOn(t, newRig(t, writer{}), kernels.Binary{Fn: kernels.Pow}, []kernels.Type{{Dtype: d, Shape: device.Shape{n, n}}}, []kerneltest.Tensor{x, y})
		require.NoError(t, err)
		for at, g := range got[0].V {
			a, b := x.V[at/n], y.V[at%n]
			w := math.Pow(a, b)
			if d == device.Float32 {
				w = float64(float32(w))
			} else if math.Abs(w) < 0x1p-1022 && w != 0 || math.Abs(a) < 0x1p-1022 && a != 0 {
				continue // where package math is not right to the last digits
			}
			off := []float64{1.2e-7, 1e-12}[k]
			if math.Abs(b) > 1000 {
				off = 1e-9 // package math's
			}
			if !(w == g && math.Signbit(w) == math.Signbit(g) || w != w && g != g || math.Abs(g-w) <= off*math.Abs(w)+0x1p-149) {
				require.Failf(t, "wrong", "%v %g to the %g is %g, want %g", d, a, b, g, w)
			}
		}
	}
}

func TestTablesAreRight(t *testing.T) {
	pi, _ := new(big.Float).SetPrec(400).SetString("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651")
	half := new(big.Float).Quo(pi, big.NewFloat(2))
	for k, parts := range halfPi {
		rest := new(big.Float).Set(half)
		for n, p := range parts {
			next, _ := rest.Float64()
			if k == 0 {
				f, _ := rest.Float32()
				next = float64(f)
			}
			require.Equal(t, next, p, "part %d of %d", n, k)
			rest.Sub(rest, big.NewFloat(p))
		}
	}
	inverse := new(big.Float).Quo(big.NewFloat(2).SetPrec(400), pi)
	for _, w := range twoOverPi[1:4] {
		inverse.SetMantExp(inverse, 64)
		i, _ := inverse.Int(nil)
		require.Equal(t, w, i.Uint64())
		inverse.Sub(inverse, new(big.Float).SetInt(i))
	}
}

func TestEveryElementwiseFunctionHasCode(t *testing.T) {
	for fn, row := range unaryCode {
		require.NotNil(t, row.code, "of %v", kernels.UnaryFn(fn))
		require.Positive(t, row.weight, "of %v", kernels.UnaryFn(fn))
	}
	for fn, row := range binaryCode {
		require.NotNil(t, row.code, "of %v", kernels.BinaryFn(fn))
		require.Positive(t, row.weight, "of %v", kernels.BinaryFn(fn))
	}
}
