package vec

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/internal/soak"
)

const bigPrec = 192

func bigFloat(x float64) *big.Float { return new(big.Float).SetPrec(bigPrec).SetFloat64(x) }

// bigExp is exp x, by Taylor's series of x/2ᵏ, squared k times.
func bigExp(x *big.Float) *big.Float {
	const k = 40
	r := new(big.Float).SetPrec(bigPrec+k).SetMantExp(x, -k)
	sum, term := new(big.Float).SetPrec(bigPrec+k).SetInt64(1), new(big.Float).SetPrec(bigPrec+k).SetInt64(1)
	for n := int64(1); n < 12; n++ { // r is below 2⁻³⁰
		term.Mul(term, r)
		term.Quo(term, new(big.Float).SetInt64(n))
		sum.Add(sum, term)
	}
	for range k {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog is log x, by two steps of Halley's method from what package math makes of the mantissa.
func bigLog(x float64) *big.Float {
	m, e := math.Frexp(x)
	y := bigFloat(math.Log(m))
	for range 2 {
		up := bigExp(y)
		step := new(big.Float).Quo(new(big.Float).Sub(bigFloat(m), up), new(big.Float).Add(bigFloat(m), up))
		y.Add(y, step.Add(step, step))
	}
	ln2, _ := new(big.Float).SetPrec(bigPrec).SetString("0.693147180559945309417232121458176568075500134360255254120680009493393621969694715605863326996418687")
	return y.Add(y, ln2.Mul(ln2, bigFloat(float64(e))))
}

// ulps is how far got is from the exact value, in units of the last place of that.
func ulps(got float64, exact *big.Float) float64 {
	want, _ := exact.Float64()
	if math.IsInf(want, 0) || math.IsInf(got, 0) {
		if want == got {
			return 0
		}
		return math.Inf(1)
	}
	unit := math.Abs(math.Nextafter(want, math.Inf(1)) - want)
	if a := math.Abs(want); a == math.MaxFloat64 {
		unit = 0x1p971
	}
	off := new(big.Float).Sub(bigFloat(got), exact)
	off.Quo(off, bigFloat(unit))
	f, _ := off.Float64()
	return math.Abs(f)
}

// anyPositive has every exponent equally often, those of subnormals too.
func anyPositive(r *rand.Rand) float64 {
	if r.IntN(8) == 0 {
		return math.Ldexp(1+r.Float64(), -1030-r.IntN(45)) // subnormal
	}
	if r.IntN(4) == 0 {
		return 1 + (r.Float64()-0.5)*math.Exp2(-float64(r.IntN(40))) // about 1
	}
	return math.Float64frombits(r.Uint64() >> 1 % 0x7ff0000000000000)
}

func TestLogarithmsExponentialsAndPowersOfFloat64AreWithinTwoUnitsOfTheLastPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	var most [3]float64
	for range soak.Cases(1500) {
		x := anyPositive(r)
		for _, l := range All[float64]() {
			o := []float64{0}
			l.Log(o, []float64{x})
			off := ulps(o[0], bigLog(x))
			require.LessOrEqual(t, off, 2.0, "%s: log %v = %v", l.Name, x, o[0])
			most[0] = max(most[0], off)
			e := (r.Float64() - 0.51) * 1460
			switch r.IntN(4) {
			case 0:
				e = math.Copysign(x, r.Float64()-0.5)
			case 1:
				e = 709 + r.Float64() // about where it becomes infinite
			}
			if math.Abs(e) > 800 {
				continue
			}
			l.Exp(o, []float64{e})
			off = ulps(o[0], bigExp(bigFloat(e)))
			require.LessOrEqual(t, off, 2.0, "%s: exp %v = %v", l.Name, e, o[0])
			most[1] = max(most[1], off)
		}
		exact := bigLog(x)
		logX, _ := exact.Float64()
		if logX == 0 {
			continue
		}
		y := (r.Float64() - 0.51) * 1460 / logX // the power is anything from 0 to infinity
		if r.IntN(2) == 0 {
			y = math.Round(y)
		}
		if math.IsInf(y, 0) || math.Abs(y*logX) > 760 {
			continue
		}
		off := ulps(Pow(x, y), bigExp(exact.Mul(exact, bigFloat(y))))
		require.LessOrEqual(t, off, 2.0, "%v to the %v = %v", x, y, Pow(x, y))
		most[2] = max(most[2], off)
	}
	t.Logf("log is off by %.3f, exp by %.3f, pow by %.3f", most[0], most[1], most[2])
}

func TestPowersThatAreNumbersAreExact(t *testing.T) {
	for n := 1.; n <= 200; n++ {
		for p, want := 0., 1.; want < 1<<53; p, want = p+1, want*max(n, 2) {
			if n == 1 {
				want = 1
				if p > 60 {
					break
				}
			}
			require.Equal(t, want, Pow(n, p), "%v to the %v", n, p)
			require.Equal(t, want*(1-2*math.Mod(p, 2)), Pow(-n, p), "%v to the %v", -n, p)
		}
		require.Equal(t, n, Pow(n*n, 0.5))
		require.Equal(t, 0x1p-1074, Pow(0.5, 1074))
	}
}

func TestPowersOfSpecialNumbersAreThoseOfPackageMath(t *testing.T) {
	inf := math.Inf(1)
	special := []float64{0, math.Copysign(0, -1), 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1e300, -1e300, 5e-324, -5e-324, inf, -inf, math.NaN()}
	for _, x := range special {
		for _, y := range special {
			got, want := Pow(x, y), math.Pow(x, y)
			require.True(t, got == want && math.Signbit(got) == math.Signbit(want) || got != got && want != want || math.Abs(got-want) <= 4e-16*math.Abs(want), "%v to the %v is %v, want %v", x, y, got, want)
		}
	}
}
