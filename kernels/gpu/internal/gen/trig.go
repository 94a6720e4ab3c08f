package gen

import (
	"fmt"
	"math"
)

// halfPi is π/2 in three parts, in float32 and in float64: what is left of each goes into the next.
var halfPi = [2][3]float64{
	{0x1.921fb6p0, -0x1.777a5cp-25, -0x1.ee59dap-50},
	{0x1.921fb54442d18p0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110},
}

// sine is sin(x), or cos(x) with cosine = 1.
func (c calc) sine(x string, cosine int) string {
	far, h, terms := 1e5, halfPi[0], 5
	if c.double {
		far, h, terms = 1<<20, halfPi[1], 9
	}
	j := c.nearest(x, 2/math.Pi)
	r := c.fma(j, c.k(-h[0]), x)
	r = c.fma(j, c.k(-h[1]), r)
	r = c.fma(j, c.k(-h[2]), r)
	q := c.whole(j)
	near, a := c.label(), c.do("abs", x)
	c.line("@%s bra %s;", c.test("leu", a, c.k(far)), near)
	c.line("@%s bra %s;", c.test("eq", a, c.inf()), near) // which made NaN
	c.farReduction(x, r, q)
	c.here(near)
	if cosine > 0 {
		q = c.op("add.s32", q, num(cosine))
	}
	r2 := c.mul(r, r)
	sin := c.fma(c.mul(r, r2), c.poly(r2, taylorSine(3, terms)), r)
	cos := c.fma(r2, c.poly(r2, taylorSine(2, terms)), c.k(1))
	odd := c.op("setp.ne.s32", c.op("and.b32", q, "1"), "0")
	y := c.pick(cos, sin, odd)
	return c.pick(c.neg(y), y, c.op("setp.ne.s32", c.op("and.b32", q, "2"), "0"))
}

// taylorSine is -1/first!, 1/(first+2)!, …
func taylorSine(first, terms int) []float64 {
	k, f := make([]float64, terms), -1.
	for n := 2; n <= first; n++ {
		f /= float64(n)
	}
	for n := range k {
		k[n] = f
		f /= -float64((first + 2*n + 1) * (first + 2*n + 2))
	}
	return k
}

// twoOverPi is 2/π: 64 zero bits, and then those behind the point.
var twoOverPi = [...]uint64{0, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
	0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f,
	0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d}

// farReduction sets r to what x is beside a multiple q of π/2, for large finite x (M. Payne, R.
// Hanek, 1983): of the product with 2/π only those bits are computed that are no multiples of 4,
// and some behind the point.
func (c calc) farReduction(x, r, q string) {
	d := calc{c.emitter, true}
	u := func(op string, args ...string) string { return c.op(op+".u64", args...) }
	raw := c.reg("b64")
	c.line("mov.b64 %s, %s;", raw, widen(c.emitter, x))
	m := c.op("or.b64", c.op("and.b64", raw, "0xfffffffffffff"), "0x10000000000000")
	exponent := c.op("cvt.u32.u64", c.op("and.b64", u("shr", raw, "52"), "0x7ff"))
	first := c.op("add.s32", exponent, num(-1075-1+63)) // the bit of the table that the window begins with: x = m·2ᵉ, and bit n weighs 2⁶³⁻ⁿ
	word, shift := c.op("shr.u32", first, "6"), c.op("and.b32", first, "63")
	var words [4]string
	for k := range words {
		words[k] = c.op("mov.u64", "0")
	}
	for n := range len(twoOverPi) - 3 {
		p := c.op("setp.eq.u32", word, num(n))
		for k := range words {
			c.set(words[k], "selp.b64", fmt.Sprintf("0x%x", twoOverPi[n+k]), words[k], p)
		}
	}
	back := c.op("sub.u32", "64", shift)
	var w [3]string
	for k := range w {
		w[k] = c.op("or.b64", c.op("shl.b64", words[k], shift), u("shr", words[k+1], back))
	}
	carry := func(sum, added string) string { return c.op("selp.u64", "1", "0", c.op("setp.lt.u64", sum, added)) }
	low := u("mul.hi", m, w[2])
	mid := u("add", u("mul.lo", m, w[1]), low)
	top := u("add", u("add", u("mul.lo", m, w[0]), u("mul.hi", m, w[1])), carry(mid, low))
	// The upper two bits count quarters; the others, with a sign, are the fraction.
	frac := c.op("or.b64", c.op("shl.b64", top, "2"), u("shr", mid, "62"))
	turns := c.op("cvt.u32.u64", u("shr", top, "62"))
	turns = c.op("add.u32", turns, c.op("cvt.u32.u64", u("shr", frac, "63")))
	part := d.mul(c.op("cvt.rn.f64.u64", c.op("shl.b64", mid, "2")), d.k(0x1p-128))
	part = d.mul(d.fma(c.op("cvt.rn.f64.s64", frac), d.k(0x1p-64), part), d.k(math.Pi/2))
	negative := c.test("lt", x, c.k(0))
	part = d.pick(d.neg(part), part, negative)
	if c.double {
		c.set(r, "mov.f64", part)
	} else {
		c.set(r, "cvt.rn.f32.f64", part)
	}
	c.set(q, "selp.b32", c.op("neg.s32", turns), turns, negative)
}
