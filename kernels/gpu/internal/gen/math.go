package gen

import "math"

// Functions of one float. In float32 they are within 2e-6 of the value, in float64 within some
// 1e-14, but where the value is next to a zero of the function that is not at 0. Exp, Log and Pow
// of float64 are within two units of the last place. NaN, infinities and zeros go through as in
// package math. Ranges are reduced until few terms of a series do.

const (
	log2e   = 1 / math.Ln2
	ln2High = 0x1.62e42fefa38p-1 // its products with integers of 11 bits are exact in float64
	ln2Low  = math.Ln2 - ln2High
	sqrtTwo = math.Sqrt2
)

// fromBits is a float32 with those bits.
func (c calc) fromBits(r string) string {
	x := c.reg("f32")
	c.line("mov.b32 %s, %s;", x, r)
	return x
}

// halves are the upper and the lower 32 bits of a float64.
func (c calc) halves(x string) (hi, lo string) {
	hi, lo = c.reg("b32"), c.reg("b32")
	c.line("mov.b64 {%s, %s}, %s;", lo, hi, x)
	return hi, lo
}

// joined is the float64 of its halves.
func (c calc) joined(hi, lo string) string {
	x := c.reg("f64")
	c.line("mov.b64 %s, {%s, %s};", x, lo, hi)
	return x
}

// nearest is the whole number nearest to x·k.
func (c calc) nearest(x string, k float64) string {
	m := float64(3 << 22)
	if c.double {
		m = 3 << 51
	}
	return c.add(c.fma(x, c.k(k), c.k(m)), c.k(-m))
}

// whole is a whole number as an integer.
func (c calc) whole(j string) string { return c.op("cvt.rni.s32."+c.typ(), j) }

// power is 2ⁱ, a normal number.
func (c calc) power(i string) string {
	if !c.double {
		return c.fromBits(c.op("shl.b32", c.op("add.s32", i, "127"), "23"))
	}
	return c.joined(c.op("shl.b32", c.op("add.s32", i, "1023"), "20"), "0")
}

// exp is by 2ʲ·eʳ with |r| ≤ ln2/2, and in float32 by the machine's power of two.
func (c calc) exp(x string) string {
	if c.double {
		return c.expParts(x, c.k(0))
	}
	j := c.clamp(c.nearest(x, log2e), -126, 127) // beyond, the rest is large, and its power far out
	r := c.fma(x, c.k(log2e), c.neg(j))
	r = c.fma(x, c.k(log2e-float64(float32(log2e))), r)
	t := c.op("shl.b32", c.op("mov.b32", c.add(j, c.k(3<<22+127))), "23") // j+127 as an exponent, from the last bits of a sum
	return c.mul(c.op("ex2.approx.ftz.f32", r), c.fromBits(t))
}

// expParts is exp(x+rest) in float64, for a rest far smaller than x.
func (c calc) expParts(x, rest string) string {
	in := c.clamp(x, -746, 711)
	j := c.nearest(in, log2e)
	r, low := c.sum(c.fma(j, c.k(-ln2High), in), c.fma(j, c.k(-ln2Low), rest))
	e, el := c.sum(c.k(1), r)
	e = c.add(e, c.add(el, c.fma(c.mul(r, r), c.poly(r, taylorExp[2:14]), low)))
	i := c.whole(j)
	half := c.op("shr.s32", i, "1") // the power may lie outside of what is normal
	e = c.mul(c.mul(e, c.power(half)), c.power(c.op("sub.s32", i, half)))
	return c.keepNaN(e, x)
}

// taylorExp is 1/n!.
var taylorExp = func() (k [16]float64) {
	k[0] = 1
	for n := 1; n < len(k); n++ {
		k[n] = k[n-1] / float64(n)
	}
	return k
}()

// lessLn2 is x - j·ln2.
func (c calc) lessLn2(x, j string) string {
	hi, lo := ln2High, ln2Low
	if !c.double {
		hi = 0x1.62e4p-1
		lo = math.Ln2 - hi
	}
	return c.fma(j, c.k(-lo), c.fma(j, c.k(-hi), x))
}

// expm1 is by 2ʲ·(eʳ-1) + (2ʲ-1), which keeps what is small.
func (c calc) expm1(x string) string {
	lo, hi := -25., 89.
	if c.double {
		lo, hi = -45, 709.9
	}
	return c.keepNaN(c.expm1Of(c.clamp(x, lo, hi)), x)
}

// expm1Of is expm1 within its bounds.
func (c calc) expm1Of(x string) string {
	terms := 8
	if c.double {
		terms = 15
	}
	j := c.nearest(x, log2e)
	r := c.lessLn2(x, j)
	p := c.fma(c.mul(r, r), c.poly(r, taylorExp[2:terms]), r)
	half := c.power(c.op("sub.s32", c.whole(j), "1")) // 2ʲ itself may be too large
	y := c.fma(p, half, c.sub(half, c.k(0.5)))
	return c.add(y, y)
}

// tanh is by expm1(2|x|), with x's sign.
func (c calc) tanh(x string) string {
	far := 10.
	if c.double {
		far = 22
	}
	a := c.do("min", c.do("abs", x), c.k(far))
	p := c.expm1Of(c.add(a, a))
	t := c.quotient(p, c.add(p, c.k(2)))
	return c.keepNaN(c.pick(c.neg(t), t, c.test("lt", x, c.k(0))), x)
}

func (c calc) sigmoid(x string) string {
	b := c.add(c.k(1), c.exp(c.neg(x)))
	if c.double {
		return c.op("rcp.rn.f64", b)
	}
	return c.op("rcp.approx.ftz.f32", b)
}

// softplus never computes the exponential of a positive number.
func (c calc) softplus(x string) string {
	e := c.exp(c.neg(c.do("abs", x)))
	u := c.add(c.k(1), e)
	k, _ := c.parts(u)
	return c.add(c.do("max", x, c.k(0)), c.logOf(c.lessOne(e, k), c.float(k)))
}

// softsign of an infinity is its limit.
func (c calc) softsign(x string) string {
	a := c.do("abs", x)
	y := c.do("div.rn", x, c.add(c.k(1), a))
	return c.pick(c.do("copysign", x, c.k(1)), y, c.test("eq", a, c.inf()))
}

// parts is u = m·2ᵏ with √½ ≤ m < √2, for normal numbers: k, an integer, and m.
func (c calc) parts(u string) (k, m string) {
	if c.double {
		hi, lo := c.halves(u)
		k = c.op("shr.s32", c.op("sub.s32", hi, num(int(math.Float64bits(math.Sqrt2/2)>>32))), "20")
		return k, c.joined(c.op("sub.s32", hi, c.op("shl.b32", k, "20")), lo)
	}
	i := c.op("mov.b32", u)
	k = c.op("shr.s32", c.op("sub.s32", i, num(int(math.Float32bits(math.Sqrt2/2)))), "23")
	return k, c.fromBits(c.op("sub.s32", i, c.op("shl.b32", k, "23")))
}

// float is an integer as a float.
func (c calc) float(k string) string { return c.op("cvt.rn."+c.typ()+".s32", k) }

// lessOne is (1+x)·2⁻ᵏ - 1, without the rounding of 1+x.
func (c calc) lessOne(x, k string) string {
	s := c.power(c.op("neg.s32", k))
	return c.fma(x, s, c.sub(s, c.k(1)))
}

// logOf is log((1+f)·2ᵏ), by 2·artanh(f/(2+f)).
func (c calc) logOf(f, k string) string {
	terms := 5
	if c.double {
		terms = 11
	}
	s := c.quotient(f, c.add(f, c.k(2)))
	s2 := c.mul(s, s)
	r := c.mul(s2, c.poly(s2, taylorArtanh[1:terms]))
	if !c.double {
		twice := c.add(s, s)
		return c.fma(k, c.k(math.Ln2), c.add(twice, c.mul(r, twice)))
	}
	half := c.mul(c.mul(f, f), c.k(0.5)) // 2s = f − f²/2 + s·f²/2: f itself has no error
	less := c.fma(s, c.fma(c.k(2), r, half), c.mul(k, c.k(ln2Low)))
	return c.fma(k, c.k(ln2High), c.sub(f, c.sub(half, less)))
}

// taylorArtanh is artanh(s)/s by s²: 1/(2n+1).
var taylorArtanh = func() (k [12]float64) {
	for n := range k {
		k[n] = 1 / float64(2*n+1)
	}
	return k
}()

func (c calc) log(x string) string {
	n, m := c.normalParts(x)
	return c.logEdges(c.logOf(c.sub(m, c.k(1)), n), x)
}

// normalParts is parts also for what is no normal number; k is a float.
func (c calc) normalParts(x string) (k, m string) {
	least, up := 0x1p-126, 23.
	if c.double {
		least, up = 0x1p-1022, 52
	}
	small := c.test("lt", x, c.k(least))
	k, m = c.parts(c.pick(c.mul(x, c.k(math.Exp2(up))), x, small))
	return c.add(c.float(k), c.pick(c.k(-up), c.k(0), small)), m
}

// logEdges is y, the logarithm of u, where u has one that is finite.
func (c calc) logEdges(y, u string) string {
	y = c.pick(u, y, c.test("geu", u, c.inf())) // NaN too
	y = c.pick(c.k(math.Inf(-1)), y, c.test("eq", u, c.k(0)))
	return c.pick(c.nan(), y, c.test("lt", u, c.k(0)))
}

func (c calc) log1p(x string) string {
	digits := 25
	if c.double {
		digits = 54
	}
	u := c.add(x, c.k(1))
	k, m := c.parts(u)
	large := c.op("setp.gt.s32", k, num(digits)) // the 1 is below the last digit
	f := c.pick(c.sub(m, c.k(1)), c.lessOne(x, c.op("min.s32", k, num(digits))), large)
	return c.logEdges(c.logOf(f, c.float(k)), u)
}
