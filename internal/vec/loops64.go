//go:build goexperiment.simd && amd64

package vec

import "simd/archsimd"

// table64 is the loops of float64 on AVX-512: arithmetic and sums. The functions of package math
// stay scalar, which gives their last digit.
func table64(name string) *Loops[float64] {
	l := plain[float64]()
	l.Name = name
	l.Add = func(o, a, b []float64) {
		zip64(o, a, b, all64x8(0), func(a, b, _ f64x8) f64x8 { return a.Add(b) })
	}
	l.Sub = func(o, a, b []float64) {
		zip64(o, a, b, all64x8(0), func(a, b, _ f64x8) f64x8 { return a.Sub(b) })
	}
	l.Mul = func(o, a, b []float64) {
		zip64(o, a, b, all64x8(0), func(a, b, _ f64x8) f64x8 { return a.Mul(b) })
	}
	l.Div = func(o, a, b []float64) {
		zip64(o, a, b, all64x8(0), func(a, b, _ f64x8) f64x8 { return a.Div(b) })
	}
	l.TanhGrad = func(o, y, gy []float64) {
		zip64(o, y, gy, all64x8(1), func(y, gy, one f64x8) f64x8 { return gy.Mul(one.Sub(y.Mul(y))) })
	}
	l.SigmoidGrad = func(o, y, gy []float64) {
		zip64(o, y, gy, all64x8(1), func(y, gy, one f64x8) f64x8 { return gy.Mul(y).Mul(one.Sub(y)) })
	}
	l.ReluGrad = func(o, x, gy []float64) {
		zip64(o, x, gy, all64x8(0), func(x, gy, zero f64x8) f64x8 { return zero.Merge(gy, x.LessEqual(zero)) })
	}
	l.AddScaled = func(o, a, b []float64, c float64) {
		zip64(o, a, b, all64x8(c), func(a, b, c f64x8) f64x8 { return b.MulAdd(c, a) })
	}
	l.Relu = func(o, x []float64) {
		zip64(o, x, x, all64x8(0), func(x, _, zero f64x8) f64x8 { return zero.Merge(x, x.Less(zero)) })
	}
	l.Sqrt = func(o, x []float64) {
		zip64(o, x, x, all64x8(0), func(x, _, _ f64x8) f64x8 { return x.Sqrt() })
	}
	l.Scale = func(o, x []float64, c float64) {
		zip64(o, x, x, all64x8(c), func(x, _, c f64x8) f64x8 { return x.Mul(c) })
	}
	l.Shift = func(o, x []float64, c float64) {
		zip64(o, x, x, all64x8(c), func(x, _, c f64x8) f64x8 { return x.Add(c) })
	}
	l.Standardize = func(o, x []float64, mean, scale float64) {
		by := all64x8(scale)
		zip64(o, x, x, all64x8(mean), func(x, _, mean f64x8) f64x8 { return x.Sub(mean).Mul(by) })
	}
	l.Sum = sum64
	l.SumSquares = func(x []float64) float64 { return products64(x, x, 0) }
	l.Dot = func(a, b []float64) float64 { return products64(a, b, 0) }
	l.Variance = func(x []float64, mean float64) float64 { return products64(x, x, mean) }
	l.Accumulate = func(acc, x []float64) {
		zip64(acc, acc, x, all64x8(0), func(acc, x, _ f64x8) f64x8 { return acc.Add(x) })
	}
	return l
}

func first64(n int) archsimd.Mask64x8 {
	return archsimd.Mask64x8FromBits(uint8(uint32(1)<<(uint(min(n, 8))&31) - 1))
}

// zip64 is zip16 for float64.
func zip64(o, a, b []float64, c f64x8, f func(a, b, c f64x8) f64x8) {
	a, b = a[:len(o)], b[:len(o)]
	i := 0
	for ; i+8 <= len(o); i += 8 {
		f(load64x8(a, i), load64x8(b, i), c).Store(at64x8(o, i))
	}
	m := first64(len(o) - i)
	f(archsimd.LoadMaskedFloat64x8(at64x8(a, i), m), archsimd.LoadMaskedFloat64x8(at64x8(b, i), m), c).StoreMasked(at64x8(o, i), m)
	archsimd.ClearAVXUpperBits()
}

// products64 is products16 for float64.
func products64(a, b []float64, c float64) float64 {
	b = b[:len(a)]
	var s0, s1 f64x8
	mid := all64x8(c)
	i := 0
	for ; i+16 <= len(a); i += 16 {
		s0 = load64x8(a, i).Sub(mid).MulAdd(load64x8(b, i).Sub(mid), s0)
		s1 = load64x8(a, i+8).Sub(mid).MulAdd(load64x8(b, i+8).Sub(mid), s1)
	}
	s := total8(s0.Add(s1))
	for ; i < len(a); i++ {
		s += (a[i] - c) * (b[i] - c)
	}
	return s
}

func sum64(x []float64) float64 {
	var s0, s1 f64x8
	i := 0
	for ; i+16 <= len(x); i += 16 {
		s0, s1 = s0.Add(load64x8(x, i)), s1.Add(load64x8(x, i+8))
	}
	s := total8(s0.Add(s1))
	for ; i < len(x); i++ {
		s += x[i]
	}
	return s
}
