package gen

// pow is x to the y as [vec.Pow] has it, in float64 whatever the type is: the logarithm is computed
// in two parts, or its error would be multiplied by y.
func (c calc) pow(x, y string) string {
	if !c.double {
		d := calc{c.emitter, true}
		return c.op("cvt.rn.f32.f64", d.pow(widen(c.emitter, x), widen(c.emitter, y)))
	}
	one := c.k(1)
	a := c.do("abs", x)
	hi, lo := c.logParts(a)
	p := c.mul(y, hi)
	rest := c.add(c.fma(y, hi, c.neg(p)), c.mul(y, lo))
	rest = c.pick(rest, c.k(0), c.test("lt", c.do("abs", p), c.k(1000))) // beyond, the power is 0 or infinite, and this may be no number
	r := c.expParts(p, rest)
	r = c.pick(one, r, c.test("eq", a, one)) // of ±1 also to the infinite
	// Below 0 a power has a sign where y is odd, and is none where y is no whole number.
	whole := c.test("eq", c.do("cvt.rmi.f64", y), y)
	half := c.mul(y, c.k(0.5))
	odd := c.op("and.pred", whole, c.test("ne", c.do("cvt.rmi.f64", half), half))
	top, _ := c.halves(x)
	negative := c.op("setp.lt.s32", top, "0")
	r = c.pick(c.neg(r), r, c.op("and.pred", negative, odd))
	root := c.op("and.pred", c.test("lt", x, c.k(0)), c.test("neu", c.do("cvt.rmi.f64", y), y))
	r = c.pick(c.nan(), r, c.op("and.pred", root, c.test("lt", a, c.inf())))
	r = c.pick(c.nan(), r, c.test("nan", x, y))
	r = c.pick(one, r, c.test("eq", y, c.k(0)))
	return c.pick(one, r, c.test("eq", x, one))
}

// logParts is the logarithm of x as a sum, whose second part is 0 where the logarithm is not
// finite. With 2ᵏ(1+f) = x and s = f/(2+f) it is k·ln2 + 2·(s + s³/3 + s⁵/5 + …), of which the
// first three terms are computed in two parts.
func (c calc) logParts(x string) (hi, lo string) {
	k, m := c.normalParts(x)
	f := c.sub(m, c.k(1))
	d := c.add(f, c.k(2))
	s := c.quotient(f, d)
	sl := c.fma(c.neg(s), c.sub(f, c.sub(d, c.k(2))), c.fma(c.neg(s), d, f))
	sl = c.quotient(sl, d)
	z, zl := c.product(s, s)
	zl = c.fma(c.add(s, s), sl, zl)
	cube, cubeLow := c.product(z, s)
	cubeLow = c.add(cubeLow, c.fma(z, sl, c.mul(zl, s)))
	const third, thirdLow = 2. / 3, 2./3 - 0x1.5555555555555p-1
	t, tl := c.product(cube, c.k(third))
	tl = c.add(tl, c.fma(cubeLow, c.k(third), c.mul(cube, c.k(thirdLow))))
	tail := c.mul(c.mul(cube, z), c.poly(z, twiceArtanh))
	l, ll := c.sum(c.add(s, s), t)
	ll = c.add(ll, c.add(c.fma(c.k(2), sl, tl), tail))
	whole := c.mul(k, c.k(ln2High))
	hi, lo = c.sum(whole, l)
	lo = c.add(lo, c.fma(k, c.k(ln2Low), ll))
	near := c.test("eq", k, c.k(0)) // only there is l the greater
	hi, lo = c.pick(l, hi, near), c.pick(ll, lo, near)
	finite := c.test("eq", c.logEdges(c.k(0), x), c.k(0))
	return c.logEdges(hi, x), c.pick(lo, c.k(0), finite)
}

// twiceArtanh is 2·(1/5 + z/7 + z²/9 + …).
var twiceArtanh = func() []float64 {
	var k [11]float64
	for n := range k {
		k[n] = 2 / float64(2*n+5)
	}
	return k[:]
}()

// product is a·b in two parts.
func (c calc) product(a, b string) (hi, lo string) {
	hi = c.mul(a, b)
	return hi, c.fma(a, b, c.neg(hi))
}

// sum is a+b in two parts, for an a that is not the smaller.
func (c calc) sum(a, b string) (hi, lo string) {
	hi = c.add(a, b)
	return hi, c.add(c.sub(a, hi), b)
}
