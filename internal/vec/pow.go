package vec

import "math"

// Functions of float64 that package math has not to the last digits. On some processors its Log is
// wrong below the normal numbers, and its Exp is infinite before it should be. Its Pow is off by
// more the larger the exponent is.

// log is the natural logarithm.
func log(x float64) float64 {
	if x > 0 && x < 0x1p-1022 {
		const up = 52 * math.Ln2
		return math.Log(x*0x1p52) - up
	}
	return math.Log(x)
}

// exp is e to the x.
func exp(x float64) float64 {
	if x > 709 && x < 710 {
		return expParts(x, 0)
	}
	return math.Exp(x)
}

// ln2 is ln2High + ln2Low; products of ln2High with integers of 11 bits are exact.
const (
	ln2High = 0x1.62e42fefa38p-1
	ln2Low  = 0x1.ef35793c7673p-45
)

// Pow is x to the y, within one unit of the last place, and exact where the power is a number.
// Special cases are those of [math.Pow].
func Pow(x, y float64) float64 {
	if x == 0 || y == 0 || x-x != 0 || y-y != 0 {
		return math.Pow(x, y)
	}
	sign := 1.0
	if x < 0 {
		if y != math.Trunc(y) {
			return math.NaN()
		}
		if half := y / 2; half != math.Trunc(half) {
			sign = -1
		}
		x = -x
	}
	hi, lo := logParts(x)
	p := y * hi
	switch {
	case p > 710:
		return sign * math.Inf(1)
	case p < -746:
		return sign * 0
	}
	return sign * expParts(p, math.FMA(y, hi, -p)+y*lo)
}

// logParts is the logarithm of a positive number as a sum, off by less than 2⁻⁶⁴ of it. With
// 2ᵏ(1+f) = x and s = f/(2+f) it is k·ln2 + 2·(s + s³/3 + s⁵/5 + …), of which the first three terms
// are computed in two parts.
func logParts(x float64) (hi, lo float64) {
	k := 0.0
	if x < 0x1p-1022 {
		x, k = x*0x1p54, -54
	}
	const half = 0x3fe6a09e667f3bcd // √½
	e := int64(math.Float64bits(x)-half) >> 52
	k += float64(e)
	f := math.Float64frombits(math.Float64bits(x)-uint64(e)<<52) - 1

	d := 2 + f
	s := f / d
	sl := (math.FMA(-s, d, f) - s*(f-(d-2))) / d
	z := s * s
	zl := math.FMA(s, s, -z) + 2*s*sl
	c := z * s
	cl := math.FMA(z, s, -c) + (z*sl + zl*s)
	const third, thirdLow = 2. / 3, 2./3 - 0x1.5555555555555p-1
	t := c * third
	tl := math.FMA(c, third, -t) + (cl*third + c*thirdLow)
	rest := c * z * artanh(z)

	l := 2*s + t
	ll := 2*s - l + t + (2*sl + tl + rest)
	if k == 0 {
		return l, ll
	}
	hi = k*ln2High + l
	return hi, k*ln2High - hi + l + (ll + k*ln2Low)
}

// artanh is 2·(1/5 + z/7 + z²/9 + …) for z below 0.03.
func artanh(z float64) float64 {
	p := 2. / 25
	for n := 23.; n >= 5; n -= 2 {
		p = math.FMA(p, z, 2/n)
	}
	return p
}

// expParts is exp(x+rest) for a rest far smaller than x, which lies between −746 and 710.
func expParts(x, rest float64) float64 {
	n := math.RoundToEven(x * math.Log2E)
	r := math.FMA(n, -ln2High, x)
	low := rest - n*ln2Low
	sum := r + low
	low += r - sum
	p := inverseFactorials[len(inverseFactorials)-1]
	for k := len(inverseFactorials) - 2; k >= 0; k-- {
		p = math.FMA(p, sum, inverseFactorials[k])
	}
	e := 1 + sum
	e += 1 - e + sum + math.FMA(sum*sum, p, low)
	half := int(n) / 2 // the power may lie outside of what is normal
	return e * power(half) * power(int(n)-half)
}

// inverseFactorials is 1/n! from n = 2 on.
var inverseFactorials = [...]float64{1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800,
	1. / 479001600, 1. / 6227020800}

// power is 2ⁿ, a normal number.
func power(n int) float64 { return math.Float64frombits(uint64(n+1023) << 52) }
