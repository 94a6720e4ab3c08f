package gen

// pow is x to the y as [math.Pow] has it, in float64 whatever the type is.
func (c calc) pow(x, y string) string {
	if !c.double {
		d := calc{c.emitter, true}
		return c.op("cvt.rn.f32.f64", d.pow(widen(c.emitter, x), widen(c.emitter, y)))
	}
	one := c.k(1)
	a := c.do("abs", x)
	r := c.exp(c.mul(y, c.log(a)))
	r = c.pick(one, r, c.test("eq", a, one)) // of ±1 also to the infinite
	// Below 0 a power has a sign where y is odd, and is none where y is no whole number.
	whole := c.test("eq", c.do("cvt.rmi.f64", y), y)
	half := c.mul(y, c.k(0.5))
	odd := c.op("and.pred", whole, c.test("ne", c.do("cvt.rmi.f64", half), half))
	hi, _ := c.halves(x)
	negative := c.op("setp.lt.s32", hi, "0")
	r = c.pick(c.neg(r), r, c.op("and.pred", negative, odd))
	root := c.op("and.pred", c.test("lt", x, c.k(0)), c.test("neu", c.do("cvt.rmi.f64", y), y))
	r = c.pick(c.nan(), r, c.op("and.pred", root, c.test("lt", a, c.inf())))
	r = c.pick(c.nan(), r, c.test("nan", x, y))
	r = c.pick(one, r, c.test("eq", y, c.k(0)))
	return c.pick(one, r, c.test("eq", x, one))
}
