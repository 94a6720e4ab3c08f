package gen

import "math"

// mills are the coefficients of M(t) = Σ k[n]·tⁿ, where Φ(-x) = exp(-x²/2)·t·M(t) for x ≥ 0 and t =
// 1/(1+p·x): interpolations at Chebyshev's nodes of 0 ≤ t ≤ 1, computed to 60 digits. They are off
// by 6e-8 and 4e-16 of the value.
var mills = [2]struct {
	p float64
	k []float64
}{
	{0.32, []float64{0.127661537688539728, 0.127659910089658496, 0.114647028203407702, 0.0875935303696323098, 0.0597993262171879523,
		-0.0125339992457537165, 0.0704682612986789317, -0.151607695159815784, 0.0979352153099336518, -0.0216231323637065709}},
	{0.24, []float64{0.0957461472963438031, 0.0957461472963857409, 0.0902311692047002167, 0.0792012135597138385, 0.0636092478360098173,
		0.0453617442293107171, 0.0270351793673926369, 0.0114369090923309399, -0.000110828506539548831, -0.00132447417443840404,
		-0.021074477740726112, 0.0562040290534209309, -0.166877689940788639, 0.383024732585866352, -0.67843763488956822, 0.949713323127875829,
		-1.02126938144372548, 0.81812094577808294, -0.476663051920039893, 0.196078076295829567, -0.0540371742430101163,
		0.00896229071288191033, -0.000676442577308816184}},
}

// normal gives, for x within bounds beyond which it makes no difference, these bounds' x,
// exp(-x²/2), and Φ(-|x|).
func (c calc) normal(x string) (in, e, tail string) {
	far, m := 15., mills[0]
	if c.double {
		far, m = 40, mills[1]
	}
	in = c.clamp(x, -far, far)
	a := c.do("abs", in)
	square := c.mul(in, in)
	rest := c.fma(in, in, c.neg(square)) // what rounding took from it counts where it is large
	e = c.exp(c.mul(square, c.k(-0.5)))
	e = c.fma(e, c.mul(rest, c.k(-0.5)), e)
	t := c.quotient(c.k(1), c.fma(a, c.k(m.p), c.k(1)))
	return in, e, c.mul(c.mul(e, t), c.poly(t, m.k))
}

// gelu is x·Φ(x).
func (c calc) gelu(x string) string {
	in, _, tail := c.normal(x)
	y := c.pick(c.mul(x, c.sub(c.k(1), tail)), c.mul(in, tail), c.test("gt", x, c.k(0)))
	return c.keepNaN(y, x)
}

// geluSlope is Φ(x) + x·φ(x).
func (c calc) geluSlope(x string) string {
	in, e, tail := c.normal(x)
	below := c.pick(c.sub(c.k(1), tail), tail, c.test("gt", x, c.k(0)))
	return c.keepNaN(c.fma(c.mul(in, e), c.k(1/math.Sqrt(2*math.Pi)), below), x)
}
