//go:build goexperiment.simd && amd64

package conv

import (
	"simd/archsimd"
	"unsafe"
)

// lanesBelow are the first n of 16 lanes, none for n < 0.
func lanesBelow(n int) archsimd.Mask32x16 {
	return archsimd.Mask32x16FromBits(uint16(1<<min(max(n, 0), 16) - 1))
}

//go:nocheckptr
func load512(p unsafe.Pointer, m archsimd.Mask32x16) archsimd.Float32x16 {
	return archsimd.LoadMaskedFloat32x16((*[16]float32)(p), m)
}

// copy32x16 is Copy: rows are short, and a call of copy for each would cost more than they do.
//
//go:nocheckptr
func copy32x16(to []float32, ldt int, from []float32, ldf, rows, n int) {
	last := lanesBelow((n-1)%16 + 1)
	for j := 0; j < n; j += 16 {
		m := last
		if n-j > 16 {
			m = lanesBelow(16)
		}
		p, q := unsafe.Pointer(&to[j]), unsafe.Pointer(&from[j])
		for range rows {
			load512(q, m).StoreMasked((*[16]float32)(p), m)
			p, q = unsafe.Add(p, 4*ldt), unsafe.Add(q, 4*ldf)
		}
	}
	archsimd.ClearAVXUpperBits()
}

// window512 is 16 windows of 2×2 elements: the upper left of each, the upper right, and those
// below.
type window512 struct{ a, b, c, d archsimd.Float32x16 }

var (
	evens = [16]uint32{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}
	odds  = [16]uint32{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}
	lower = [16]uint32{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
	upper = [16]uint32{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
)

//go:nocheckptr
func windows512(p unsafe.Pointer, ld int, m, n archsimd.Mask32x16, even, odd archsimd.Uint32x16) window512 {
	q := unsafe.Add(p, 4*ld)
	x, y := load512(p, m), load512(unsafe.Add(p, 64), n)
	z, w := load512(q, m), load512(unsafe.Add(q, 64), n)
	return window512{x.ConcatPermute(y, even), x.ConcatPermute(y, odd), z.ConcatPermute(w, even), z.ConcatPermute(w, odd)}
}

func (w window512) max() archsimd.Float32x16 { return w.a.Max(w.b).Max(w.c.Max(w.d)) }

func (w window512) nan() bool {
	return w.a.IsNaN().Or(w.b.IsNaN()).Or(w.c.IsNaN().Or(w.d.IsNaN())).ToBits() != 0
}

// maxPool32x16 is MaxPool.
//
//go:nocheckptr
func maxPool32x16(o, x []float32, rows, cols, ld int) bool {
	even, odd := archsimd.LoadUint32x16(&evens), archsimd.LoadUint32x16(&odds)
	for j := 0; j < cols; j += 16 {
		k := cols - j
		m, n, out := lanesBelow(2*k), lanesBelow(2*k-16), lanesBelow(k)
		for r := range rows {
			w := windows512(unsafe.Pointer(&x[2*r*ld+2*j]), ld, m, n, even, odd)
			if w.nan() {
				archsimd.ClearAVXUpperBits()
				return false
			}
			w.max().StoreMasked((*[16]float32)(unsafe.Pointer(&o[r*cols+j])), out)
		}
	}
	archsimd.ClearAVXUpperBits()
	return true
}

// maxPoolGrad32x16 is MaxPoolGrad.
//
//go:nocheckptr
func maxPoolGrad32x16(gx, x, gy []float32, rows, cols, ld int) bool {
	even, odd := archsimd.LoadUint32x16(&evens), archsimd.LoadUint32x16(&odds)
	lo, hi := archsimd.LoadUint32x16(&lower), archsimd.LoadUint32x16(&upper)
	for j := 0; j < cols; j += 16 {
		k := cols - j
		m, n, out := lanesBelow(2*k), lanesBelow(2*k-16), lanesBelow(k)
		for r := range rows {
			at := 2*r*ld + 2*j
			w := windows512(unsafe.Pointer(&x[at]), ld, m, n, even, odd)
			if w.nan() {
				archsimd.ClearAVXUpperBits()
				return false
			}
			best, g := w.max(), load512(unsafe.Pointer(&gy[r*cols+j]), out)
			a, b, c := w.a.Equal(best).ToBits(), w.b.Equal(best).ToBits(), w.c.Equal(best).ToBits()
			ga, gb := g.Masked(archsimd.Mask32x16FromBits(a)), g.Masked(archsimd.Mask32x16FromBits(b&^a))
			gc, gd := g.Masked(archsimd.Mask32x16FromBits(c&^(a|b))), g.Masked(archsimd.Mask32x16FromBits(^(a | b | c)))
			p := unsafe.Pointer(&gx[at])
			q := unsafe.Add(p, 4*ld)
			ga.ConcatPermute(gb, lo).StoreMasked((*[16]float32)(p), m)
			ga.ConcatPermute(gb, hi).StoreMasked((*[16]float32)(unsafe.Add(p, 64)), n)
			gc.ConcatPermute(gd, lo).StoreMasked((*[16]float32)(q), m)
			gc.ConcatPermute(gd, hi).StoreMasked((*[16]float32)(unsafe.Add(q, 64)), n)
		}
	}
	archsimd.ClearAVXUpperBits()
	return true
}
