// Code generated from loops16.go by go test -run TestTheNarrowLoopsAreTheWideOnes -update; DO NOT EDIT.

//go:build goexperiment.simd && amd64

package vec

import (
	"math"
	"simd/archsimd"
)

// each8 is o = f(x, c). A parameter that is a vector makes the compiler inline it, and f into it:
// so does c, used or not.
func each8(o, x []float32, c f32x8, f func(x, c f32x8) f32x8) {
	x = x[:len(o)]
	i := 0
	for ; i+width8 <= len(o); i += width8 {
		f(load8(x, i), c).Store(at8(o, i))
	}
	m := first8(len(o) - i)
	f(loadFirst8(x, i, m), c).StoreMasked(at8(o, i), m)
	archsimd.ClearAVXUpperBits()
}

// zip8 is o = f(a, b, c), and zip3x8 o = f(a, b, c, d) with d a row.
func zip8(o, a, b []float32, c f32x8, f func(a, b, c f32x8) f32x8) {
	a, b = a[:len(o)], b[:len(o)]
	i := 0
	for ; i+width8 <= len(o); i += width8 {
		f(load8(a, i), load8(b, i), c).Store(at8(o, i))
	}
	m := first8(len(o) - i)
	f(loadFirst8(a, i, m), loadFirst8(b, i, m), c).StoreMasked(at8(o, i), m)
	archsimd.ClearAVXUpperBits()
}

// products8 is Σ(a−c)(b−c) in float64, in two places, so that an addition need not wait for the
// one before.
func products8(a, b []float32, c float64) float64 {
	b = b[:len(a)]
	var s0, s1 f64x4
	mid := all64x4(c)
	i := 0
	for ; i+2*width4 <= len(a); i += 2 * width4 {
		s0 = loadWide4(a, i).Sub(mid).MulAdd(loadWide4(b, i).Sub(mid), s0)
		s1 = loadWide4(a, i+width4).Sub(mid).MulAdd(loadWide4(b, i+width4).Sub(mid), s1)
	}
	s := total4(s0.Add(s1))
	for ; i < len(a); i++ {
		s += (float64(a[i]) - c) * (float64(b[i]) - c)
	}
	return s
}

func sum8(x []float32) float64 {
	var s0, s1 f64x4
	i := 0
	for ; i+2*width4 <= len(x); i += 2 * width4 {
		s0, s1 = s0.Add(loadWide4(x, i)), s1.Add(loadWide4(x, i+width4))
	}
	s := total4(s0.Add(s1))
	for ; i < len(x); i++ {
		s += float64(x[i])
	}
	return s
}

func accumulate8(acc []float64, x []float32) {
	x = x[:len(acc)]
	i := 0
	for ; i+width4 <= len(acc); i += width4 {
		load64x4(acc, i).Add(loadWide4(x, i)).Store(at64x4(acc, i))
	}
	archsimd.ClearAVXUpperBits()
	for ; i < len(acc); i++ {
		acc[i] += float64(x[i])
	}
}

// accumulateRows8 goes down the rows by columns of some vectors, whose sums stay in registers.
func accumulateRows8(acc []float64, x []float32, rows int) {
	n := len(acc)
	x = x[:rows*n]
	i := 0
	for ; i+4*width4 <= n; i += 4 * width4 {
		s0, s1, s2, s3 := load64x4(acc, i), load64x4(acc, i+width4), load64x4(acc, i+2*width4), load64x4(acc, i+3*width4)
		for at := i; at < len(x); at += n {
			s0, s1 = s0.Add(loadWide4(x, at)), s1.Add(loadWide4(x, at+width4))
			s2, s3 = s2.Add(loadWide4(x, at+2*width4)), s3.Add(loadWide4(x, at+3*width4))
		}
		s0.Store(at64x4(acc, i))
		s1.Store(at64x4(acc, i+width4))
		s2.Store(at64x4(acc, i+2*width4))
		s3.Store(at64x4(acc, i+3*width4))
	}
	for ; i+width4 <= n; i += width4 {
		s := load64x4(acc, i)
		for at := i; at < len(x); at += n {
			s = s.Add(loadWide4(x, at))
		}
		s.Store(at64x4(acc, i))
	}
	archsimd.ClearAVXUpperBits()
	for ; i < n; i++ {
		for at := i; at < len(x); at += n {
			acc[i] += float64(x[at])
		}
	}
}

// accumulateMul8: a product of two float32 is exact in float64, fused or not.
func accumulateMul8(acc []float64, a, b []float32) {
	a, b = a[:len(acc)], b[:len(acc)]
	i := 0
	for ; i+width4 <= len(acc); i += width4 {
		loadWide4(a, i).MulAdd(loadWide4(b, i), load64x4(acc, i)).Store(at64x4(acc, i))
	}
	archsimd.ClearAVXUpperBits()
	for ; i < len(acc); i++ {
		acc[i] += float64(a[i]) * float64(b[i])
	}
}

func mulAdd8(o, a, b, c []float32) {
	a, b, c = a[:len(o)], b[:len(o)], c[:len(o)]
	i := 0
	for ; i+width8 <= len(o); i += width8 {
		load8(a, i).MulAdd(load8(b, i), load8(c, i)).Store(at8(o, i))
	}
	m := first8(len(o) - i)
	loadFirst8(a, i, m).MulAdd(loadFirst8(b, i, m), loadFirst8(c, i, m)).StoreMasked(at8(o, i), m)
	archsimd.ClearAVXUpperBits()
}

// max8 remembers NaNs apart, as maximum8 does not need to.
func max8(x []float32) float32 {
	low := all8(float32(math.Inf(-1)))
	most, nan := low, low
	i := 0
	for ; i+width8 <= len(x); i += width8 {
		v := load8(x, i)
		most, nan = most.Max(v), where8(v.IsNaN(), v, nan)
	}
	m := first8(len(x) - i)
	v := where8(m, loadFirst8(x, i, m), low)
	most, nan = most.Max(v), where8(v.IsNaN(), v, nan)
	if nan.IsNaN().ToBits() != 0 {
		archsimd.ClearAVXUpperBits()
		return float32(math.NaN())
	}
	var a [width4]float32
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

func expSum8(o, x []float32, c float32) float64 {
	x = x[:len(o)]
	shift := all8(-c)
	var s0, s1 f64x4
	i := 0
	for ; i+width8 <= len(o); i += width8 {
		e := exp8(load8(x, i).Add(shift))
		e.Store(at8(o, i))
		s0, s1 = s0.Add(e.GetLo().ConvertToFloat64()), s1.Add(e.GetHi().ConvertToFloat64())
	}
	m := first8(len(o) - i)
	e := exp8(loadFirst8(x, i, m).Add(shift)).Masked(m)
	e.StoreMasked(at8(o, i), m)
	s0, s1 = s0.Add(e.GetLo().ConvertToFloat64()), s1.Add(e.GetHi().ConvertToFloat64())
	return total4(s0.Add(s1))
}
