//go:build goexperiment.simd && amd64

package vec

// poly16 begins a polynomial in x, and more16 continues it.
func poly16(x f32x16, p *[5]lanes) f32x16 {
	y := p[0].x16().MulAdd(x, p[1].x16()).MulAdd(x, p[2].x16())
	return y.MulAdd(x, p[3].x16()).MulAdd(x, p[4].x16())
}

func more16(y, x f32x16, p *[4]lanes) f32x16 {
	return y.MulAdd(x, p[0].x16()).MulAdd(x, p[1].x16()).MulAdd(x, p[2].x16()).MulAdd(x, p[3].x16())
}

// where16 is a where m, else b.
func where16(m mask16, a, b f32x16) f32x16 { return a.Merge(b, m) }

// maximum16 is NaN where one of the two is: which of them Max gives then, the compiler may choose,
// and which of two zeros. −0 is below 0.
func maximum16(a, b f32x16) f32x16 {
	same := a.AsInt32x16().And(b.AsInt32x16()).AsFloat32x16()
	return where16(a.IsNaN(), a, where16(b.IsNaN(), b, where16(a.Equal(b), same, a.Max(b))))
}

func minimum16(a, b f32x16) f32x16 {
	same := a.AsInt32x16().Or(b.AsInt32x16()).AsFloat32x16()
	return where16(a.IsNaN(), a, where16(b.IsNaN(), b, where16(a.Equal(b), same, a.Min(b))))
}

// sign16 is the sign bit of x, abs16 the rest. Two such operations in a row must not load their
// constants: of those go1.26.8 makes an instruction that there is not.
func sign16(x f32x16) i32x16 { return x.AsInt32x16().And(allInt16(-1 << 31)) }

func abs16(x f32x16) f32x16 { return x.AsInt32x16().AndNot(k.sign.x16().AsInt32x16()).AsFloat32x16() }

func neg16(x f32x16) f32x16 { return x.AsInt32x16().Xor(k.sign.x16().AsInt32x16()).AsFloat32x16() }

// expParts16 gives p and whole n with exp(x+rest) = p·2ⁿ, for a rest far smaller than x. A NaN
// stays one.
func expParts16(x, rest f32x16) (p, n f32x16) {
	low, high, whole := k.expLow.x16(), k.expHigh.x16(), k.rounder.x16()
	x = where16(x.Less(low), low, x)
	x = where16(x.Greater(high), high, x)
	n = x.MulAdd(k.log2e.x16(), whole).Sub(whole)
	r := n.MulAdd(k.minusLn2Rest.x16(), n.MulAdd(k.minusLn2.x16(), x).Add(rest))
	return poly16(r, &k.expP).MulAdd(r.Mul(r), r).Add(k.one.x16()), n
}

// exp16 scales nothing where the result is 0: to let that underflow costs the processor 100 ns, and
// what is masked in attention is −∞.
func exp16(x f32x16) f32x16 {
	gone := x.Less(k.expGone.x16())
	p, n := expParts16(where16(gone, k.zero.x16(), x), k.zero.x16())
	return where16(gone, k.zero.x16(), scale16(p, n))
}

func log16(x f32x16) f32x16 {
	tiny := x.Less(k.normal.x16())
	bits := where16(tiny, x.Mul(k.normalize.x16()), x).AsInt32x16().Sub(allInt16(0x3f3504f3)) // √½
	n := bits.ShiftAllRight(23).ConvertToFloat32().Sub(k.normalizeLog.x16().Masked(tiny))
	f := bits.And(allInt16(1<<23 - 1)).Add(allInt16(0x3f3504f3)).AsFloat32x16().Sub(k.one.x16())
	y := more16(poly16(f, &k.logP), f, &k.logQ).Mul(f)
	square := f.Mul(f)
	n = neg16(n)
	y = n.MulAdd(k.minusLn2Rest.x16(), square.MulAdd(k.minusHalf.x16(), y.Mul(square)))
	y = n.MulAdd(k.minusLn2.x16(), f.Add(y))
	y = where16(x.Less(k.infinity.x16()), y, x)
	y = where16(x.Less(k.zero.x16()), k.notNumber.x16(), y)
	return where16(x.Equal(k.zero.x16()), neg16(k.infinity.x16()), y)
}

func tanh16(x f32x16) f32x16 {
	a := abs16(x)
	e := exp16(a.Add(a))
	large := k.one.x16().Sub(k.two.x16().Div(e.Add(k.one.x16())))
	z := a.Mul(a)
	small := poly16(z, &k.tanhP).MulAdd(z.Mul(a), a)
	y := where16(a.Less(k.tanhSmall.x16()), small, large)
	return y.AsInt32x16().Or(sign16(x)).AsFloat32x16()
}

// sigmoid16 is exp(x)/(1+exp(x)) where x < 0: the exponential of a large positive number is never
// computed.
func sigmoid16(x f32x16) f32x16 {
	e := exp16(x.AsInt32x16().Or(k.sign.x16().AsInt32x16()).AsFloat32x16()) // of −|x|
	return where16(x.Less(k.zero.x16()), e, k.one.x16()).Div(e.Add(k.one.x16()))
}

// relu16 lets a NaN pass.
func relu16(x f32x16) f32x16 { return where16(x.Less(k.zero.x16()), k.zero.x16(), x) }

// tail16 gives, for a = |x| where that is below tailEnd, Φ(−a) = u·2ⁿ·p and φ(a) = 2ⁿ·p/√2π. Two
// rounding errors would be multiplied, and are carried along: that of 1/(a+K), of which a step of
// Newton's method finds the rest, and that of a².
func tail16(x f32x16) (a, u, p, n f32x16) {
	a = abs16(x).Min(k.tailEnd.x16())
	s := a.Add(k.tailK.x16())
	v := k.one.x16().Div(s)
	off := s.Sub(k.tailK.x16()).Sub(a)
	rest := off.MulAdd(v, neg16(s).MulAdd(v, k.one.x16())).Mul(v) // (1 − (a+K)·v)·v
	t := rest.MulAdd(k.tail2K.x16(), v.MulAdd(k.tail2K.x16(), k.one.x16()))
	u = more16(poly16(t, &k.tailP), t, &k.tailQ).MulAdd(t, k.tailLast.x16()).Mul(v.Add(rest))
	b := a.Mul(k.minusHalf.x16())
	square := a.Mul(b)
	p, n = expParts16(square, a.MulAdd(b, neg16(square)))
	return a, u, p, n
}

// gelu16 is x·Φ(x) = relu(x) − |x|·Φ(−|x|).
func gelu16(x f32x16) f32x16 {
	a, u, p, n := tail16(x)
	return relu16(x).Sub(scale16(a.Mul(u).Mul(p), n))
}

// geluGrad16 is Φ(x) + x·φ(x), which for −x is 1 less that.
func geluGrad16(x f32x16) f32x16 {
	a, u, p, n := tail16(x)
	g := scale16(neg16(a).MulAdd(k.invSqrt2Pi.x16(), u).Mul(p), n)
	y := where16(x.Less(k.zero.x16()), g, k.one.x16().Sub(g))
	return where16(x.IsNaN(), x, y)
}
