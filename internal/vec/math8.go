// Code generated from math16.go by go test -run TestTheNarrowLoopsAreTheWideOnes -update; DO NOT EDIT.

//go:build goexperiment.simd && amd64

package vec

// poly8 begins a polynomial in x, and more8 continues it.
func poly8(x f32x8, p *[5]lanes) f32x8 {
	y := p[0].x8().MulAdd(x, p[1].x8()).MulAdd(x, p[2].x8())
	return y.MulAdd(x, p[3].x8()).MulAdd(x, p[4].x8())
}

func more8(y, x f32x8, p *[4]lanes) f32x8 {
	return y.MulAdd(x, p[0].x8()).MulAdd(x, p[1].x8()).MulAdd(x, p[2].x8()).MulAdd(x, p[3].x8())
}

// where8 is a where m, else b.
func where8(m mask8, a, b f32x8) f32x8 { return a.Merge(b, m) }

// maximum8 is NaN where one of the two is: which of them Max gives then, the compiler may choose,
// and which of two zeros. −0 is below 0.
func maximum8(a, b f32x8) f32x8 {
	same := a.AsInt32x8().And(b.AsInt32x8()).AsFloat32x8()
	return where8(a.IsNaN(), a, where8(b.IsNaN(), b, where8(a.Equal(b), same, a.Max(b))))
}

func minimum8(a, b f32x8) f32x8 {
	same := a.AsInt32x8().Or(b.AsInt32x8()).AsFloat32x8()
	return where8(a.IsNaN(), a, where8(b.IsNaN(), b, where8(a.Equal(b), same, a.Min(b))))
}

// sign8 is the sign bit of x, abs8 the rest. Two such operations in a row must not load their
// constants: of those go1.26.8 makes an instruction that there is not.
func sign8(x f32x8) i32x8 { return x.AsInt32x8().And(allInt8(-1 << 31)) }

func abs8(x f32x8) f32x8 { return x.AsInt32x8().AndNot(k.sign.x8().AsInt32x8()).AsFloat32x8() }

func neg8(x f32x8) f32x8 { return x.AsInt32x8().Xor(k.sign.x8().AsInt32x8()).AsFloat32x8() }

// expParts8 gives p and whole n with exp(x+rest) = p·2ⁿ, for a rest far smaller than x. A NaN
// stays one.
func expParts8(x, rest f32x8) (p, n f32x8) {
	low, high, whole := k.expLow.x8(), k.expHigh.x8(), k.rounder.x8()
	x = where8(x.Less(low), low, x)
	x = where8(x.Greater(high), high, x)
	n = x.MulAdd(k.log2e.x8(), whole).Sub(whole)
	r := n.MulAdd(k.minusLn2Rest.x8(), n.MulAdd(k.minusLn2.x8(), x).Add(rest))
	return poly8(r, &k.expP).MulAdd(r.Mul(r), r).Add(k.one.x8()), n
}

// exp8 scales nothing where the result is 0: to let that underflow costs the processor 100 ns, and
// what is masked in attention is −∞.
func exp8(x f32x8) f32x8 {
	gone := x.Less(k.expGone.x8())
	p, n := expParts8(where8(gone, k.zero.x8(), x), k.zero.x8())
	return where8(gone, k.zero.x8(), scale8(p, n))
}

func log8(x f32x8) f32x8 {
	tiny := x.Less(k.normal.x8())
	bits := where8(tiny, x.Mul(k.normalize.x8()), x).AsInt32x8().Sub(allInt8(0x3f3504f3)) // √½
	n := bits.ShiftAllRight(23).ConvertToFloat32().Sub(k.normalizeLog.x8().Masked(tiny))
	f := bits.And(allInt8(1<<23 - 1)).Add(allInt8(0x3f3504f3)).AsFloat32x8().Sub(k.one.x8())
	y := more8(poly8(f, &k.logP), f, &k.logQ).Mul(f)
	square := f.Mul(f)
	n = neg8(n)
	y = n.MulAdd(k.minusLn2Rest.x8(), square.MulAdd(k.minusHalf.x8(), y.Mul(square)))
	y = n.MulAdd(k.minusLn2.x8(), f.Add(y))
	y = where8(x.Less(k.infinity.x8()), y, x)
	y = where8(x.Less(k.zero.x8()), k.notNumber.x8(), y)
	return where8(x.Equal(k.zero.x8()), neg8(k.infinity.x8()), y)
}

func tanh8(x f32x8) f32x8 {
	a := abs8(x)
	e := exp8(a.Add(a))
	large := k.one.x8().Sub(k.two.x8().Div(e.Add(k.one.x8())))
	z := a.Mul(a)
	small := poly8(z, &k.tanhP).MulAdd(z.Mul(a), a)
	y := where8(a.Less(k.tanhSmall.x8()), small, large)
	return y.AsInt32x8().Or(sign8(x)).AsFloat32x8()
}

// sigmoid8 is exp(x)/(1+exp(x)) where x < 0: the exponential of a large positive number is never
// computed.
func sigmoid8(x f32x8) f32x8 {
	e := exp8(x.AsInt32x8().Or(k.sign.x8().AsInt32x8()).AsFloat32x8()) // of −|x|
	return where8(x.Less(k.zero.x8()), e, k.one.x8()).Div(e.Add(k.one.x8()))
}

// relu8 lets a NaN pass.
func relu8(x f32x8) f32x8 { return where8(x.Less(k.zero.x8()), k.zero.x8(), x) }

// tail8 gives, for a = |x| where that is below tailEnd, Φ(−a) = u·2ⁿ·p and φ(a) = 2ⁿ·p/√2π. Two
// rounding errors would be multiplied, and are carried along: that of 1/(a+K), of which a step of
// Newton's method finds the rest, and that of a².
func tail8(x f32x8) (a, u, p, n f32x8) {
	a = abs8(x).Min(k.tailEnd.x8())
	s := a.Add(k.tailK.x8())
	v := k.one.x8().Div(s)
	off := s.Sub(k.tailK.x8()).Sub(a)
	rest := off.MulAdd(v, neg8(s).MulAdd(v, k.one.x8())).Mul(v) // (1 − (a+K)·v)·v
	t := rest.MulAdd(k.tail2K.x8(), v.MulAdd(k.tail2K.x8(), k.one.x8()))
	u = more8(poly8(t, &k.tailP), t, &k.tailQ).MulAdd(t, k.tailLast.x8()).Mul(v.Add(rest))
	b := a.Mul(k.minusHalf.x8())
	square := a.Mul(b)
	p, n = expParts8(square, a.MulAdd(b, neg8(square)))
	return a, u, p, n
}

// gelu8 is x·Φ(x) = relu(x) − |x|·Φ(−|x|).
func gelu8(x f32x8) f32x8 {
	a, u, p, n := tail8(x)
	return relu8(x).Sub(scale8(a.Mul(u).Mul(p), n))
}

// geluGrad8 is Φ(x) + x·φ(x), which for −x is 1 less that.
func geluGrad8(x f32x8) f32x8 {
	a, u, p, n := tail8(x)
	g := scale8(neg8(a).MulAdd(k.invSqrt2Pi.x8(), u).Mul(p), n)
	y := where8(x.Less(k.zero.x8()), g, k.one.x8().Sub(g))
	return where8(x.IsNaN(), x, y)
}
