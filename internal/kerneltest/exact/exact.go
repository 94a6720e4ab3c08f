package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
)

// prec is of how many bits results are.
const prec = 192

// Float is x, with room for results.
func Float(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

// Exp is exp x, by Taylor's series of x/2ᵏ, squared k times.
func Exp(x *big.Float) *big.Float {
	const k = 40
	r := new(big.Float).SetPrec(prec+k).SetMantExp(x, -k)
	sum, term := new(big.Float).SetPrec(prec+k).SetInt64(1), new(big.Float).SetPrec(prec+k).SetInt64(1)
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

// Log is log x, by two steps of Halley's method from what package math makes of the mantissa.
func Log(x float64) *big.Float {
	m, e := math.Frexp(x)
	y := Float(math.Log(m))
	for range 2 {
		up := Exp(y)
		step := new(big.Float).Quo(new(big.Float).Sub(Float(m), up), new(big.Float).Add(Float(m), up))
		y.Add(y, step.Add(step, step))
	}
	ln2, _ := new(big.Float).SetPrec(prec).SetString("0.693147180559945309417232121458176568075500134360255254120680009493393621969694715605863326996418687")
	return y.Add(y, ln2.Mul(ln2, Float(float64(e))))
}

// Ulps is how far got is from the exact value, in units of the last place of that.
func Ulps(got float64, exact *big.Float) float64 {
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
	off := new(big.Float).Sub(Float(got), exact)
	off.Quo(off, Float(unit))
	f, _ := off.Float64()
	return math.Abs(f)
}

// AnyPositive has every exponent equally often, those of subnormals too.
func AnyPositive(r *rand.Rand) float64 {
	if r.IntN(8) == 0 {
		return math.Ldexp(1+r.Float64(), -1030-r.IntN(45)) // subnormal
	}
	if r.IntN(4) == 0 {
		return 1 + (r.Float64()-0.5)*math.Exp2(-float64(r.IntN(40))) // about 1
	}
	return math.Float64frombits(r.Uint64() >> 1 % 0x7ff0000000000000)
}
