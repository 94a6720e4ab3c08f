//go:build goexperiment.simd && amd64

package vec

import (
	"math"
	"simd/archsimd"
)

// each16 is o = f(x, c). A parameter that is a vector makes the compiler inline it, and f into it:
// so does c, used or not.
func each16(o, x []float32, c f32x16, f func(x, c f32x16) f32x16) {
	x = x[:len(o)]
	i := 0
	for ; i+width16 <= len(o); i += width16 {
		f(load16(x, i), c).Store(at16(o, i))
	}
	m := first16(len(o) - i)
	f(loadFirst16(x, i, m), c).StoreMasked(at16(o, i), m)
	archsimd.ClearAVXUpperBits()
}

// zip16 is o = f(a, b, c), and zip3x16 o = f(a, b, c, d) with d a row.
func zip16(o, a, b []float32, c f32x16, f func(a, b, c f32x16) f32x16) {
	a, b = a[:len(o)], b[:len(o)]
	i := 0
	for ; i+width16 <= len(o); i += width16 {
		f(load16(a, i), load16(b, i), c).Store(at16(o, i))
	}
	m := first16(len(o) - i)
	f(loadFirst16(a, i, m), loadFirst16(b, i, m), c).StoreMasked(at16(o, i), m)
	archsimd.ClearAVXUpperBits()
}

// products16 is Σ(a−c)(b−c) in float64, in two places, so that an addition need not wait for the
// one before.
func products16(a, b []float32, c float64) float64 {
	b = b[:len(a)]
	var s0, s1 f64x8
	mid := all64x8(c)
	i := 0
	for ; i+2*width8 <= len(a); i += 2 * width8 {
		s0 = loadWide8(a, i).Sub(mid).MulAdd(loadWide8(b, i).Sub(mid), s0)
		s1 = loadWide8(a, i+width8).Sub(mid).MulAdd(loadWide8(b, i+width8).Sub(mid), s1)
	}
	s := total8(s0.Add(s1))
	for ; i < len(a); i++ {
		s += (float64(a[i]) - c) * (float64(b[i]) - c)
	}
	return s
}

func sum16(x []float32) float64 {
	var s0, s1 f64x8
	i := 0
	for ; i+2*width8 <= len(x); i += 2 * width8 {
		s0, s1 = s0.Add(loadWide8(x, i)), s1.Add(loadWide8(x, i+width8))
	}
	s := total8(s0.Add(s1))
	for ; i < len(x); i++ {
		s += float64(x[i])
	}
	return s
}

func accumulate16(acc []float64, x []float32) {
	x = x[:len(acc)]
	i := 0
	for ; i+width8 <= len(acc); i += width8 {
		load64x8(acc, i).Add(loadWide8(x, i)).Store(at64x8(acc, i))
	}
	archsimd.ClearAVXUpperBits()
	for ; i < len(acc); i++ {
		acc[i] += float64(x[i])
	}
}

// accumulateRows16 goes down the rows by columns of some vectors, whose sums stay in registers.
func accumulateRows16(acc []float64, x []float32, rows int) {
	n := len(acc)
	x = x[:rows*n]
	i := 0
	for ; i+4*width8 <= n; i += 4 * width8 {
		s0, s1, s2, s3 := load64x8(acc, i), load64x8(acc, i+width8), load64x8(acc, i+2*width8), load64x8(acc, i+3*width8)
		for at := i; at < len(x); at += n {
			s0, s1 = s0.Add(loadWide8(x, at)), s1.Add(loadWide8(x, at+width8))
			s2, s3 = s2.Add(loadWide8(x, at+2*width8)), s3.Add(loadWide8(x, at+3*width8))
		}
		s0.Store(at64x8(acc, i))
		s1.Store(at64x8(acc, i+width8))
		s2.Store(at64x8(acc, i+2*width8))
		s3.Store(at64x8(acc, i+3*width8))
	}
	for ; i+width8 <= n; i += width8 {
		s := load64x8(acc, i)
		for at := i; at < len(x); at += n {
			s = s.Add(loadWide8(x, at))
		}
		s.Store(at64x8(acc, i))
	}
	archsimd.ClearAVXUpperBits()
	for ; i < n; i++ {
		for at := i; at < len(x); at += n {
			acc[i] += float64(x[at])
		}
	}
}

// accumulateMul16: a product of two float32 is exact in float64, fused or not.
func accumulateMul16(acc []float64, a, b []float32) {
	a, b = a[:len(acc)], b[:len(acc)]
	i := 0
	for ; i+width8 <= len(acc); i += width8 {
		loadWide8(a, i).MulAdd(loadWide8(b, i), load64x8(acc, i)).Store(at64x8(acc, i))
	}
	archsimd.ClearAVXUpperBits()
	for ; i < len(acc); i++ {
		acc[i] += float64(a[i]) * float64(b[i])
	}
}

func mulAdd16(o, a, b, c []float32) {
	a, b, c = a[:len(o)], b[:len(o)], c[:len(o)]
	i := 0
	for ; i+width16 <= len(o); i += width16 {
		load16(a, i).MulAdd(load16(b, i), load16(c, i)).Store(at16(o, i))
	}
	m := first16(len(o) - i)
	loadFirst16(a, i, m).MulAdd(loadFirst16(b, i, m), loadFirst16(c, i, m)).StoreMasked(at16(o, i), m)
	archsimd.ClearAVXUpperBits()
}

// max16 remembers NaNs apart, as maximum16 does not need to.
func max16(x []float32) float32 {
	low := all16(float32(math.Inf(-1)))
	most, nan := low, low
	i := 0
	for ; i+width16 <= len(x); i += width16 {
		v := load16(x, i)
		most, nan = most.Max(v), where16(v.IsNaN(), v, nan)
	}
	m := first16(len(x) - i)
	v := where16(m, loadFirst16(x, i, m), low)
	most, nan = most.Max(v), where16(v.IsNaN(), v, nan)
	if nan.IsNaN().ToBits() != 0 {
		archsimd.ClearAVXUpperBits()
		return float32(math.NaN())
	}
	var a [width8]float32
	most.GetLo().Max(most.GetHi()).Store(&a)
	archsimd.ClearAVXUpperBits()
	r := a[0]
	for _, v := range a {
		if v > r {
			r = v
		}
	}
	return r
}

func expSum16(o, x []float32, c float32) float64 {
	x = x[:len(o)]
	shift := all16(-c)
	var s0, s1 f64x8
	i := 0
	for ; i+width16 <= len(o); i += width16 {
		e := exp16(load16(x, i).Add(shift))
		e.Store(at16(o, i))
		s0, s1 = s0.Add(e.GetLo().ConvertToFloat64()), s1.Add(e.GetHi().ConvertToFloat64())
	}
	m := first16(len(o) - i)
	e := exp16(loadFirst16(x, i, m).Add(shift)).Masked(m)
	e.StoreMasked(at16(o, i), m)
	s0, s1 = s0.Add(e.GetLo().ConvertToFloat64()), s1.Add(e.GetHi().ConvertToFloat64())
	return total8(s0.Add(s1))
}
