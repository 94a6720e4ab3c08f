// Code generated from tile32x16.go by go test -run TestTheTilesOfAllVectorsAreOneTile -update; DO NOT EDIT.

//go:build goexperiment.simd && amd64

package gemm

import (
	"simd/archsimd"
	"unsafe"
)

type f64x4 = archsimd.Float64x4

// lanes64x4 is how many elements are in a vector, and size64x4 how many bytes.
const lanes64x4, size64x4 = 4, int(unsafe.Sizeof(f64x4{}))

// tile64x4 multiplies tiles of two rows of four vectors.
func tile64x4(k int, a []float64, rs, cs int, b []float64, ldb int, c []float64, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 f64x4
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	const size = int(unsafe.Sizeof(a[0]))
	rs, cs, ldb = size*rs, size*cs, size*ldb
	for {
		c00, c01, c02, c03, c10, c11, c12, c13 = step64x4(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64x4(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64x4(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64x4(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load64x4(p).Add(c00), load64x4(unsafe.Add(p, size64x4)).Add(c01)
		c02, c03 = load64x4(unsafe.Add(p, 2*size64x4)).Add(c02), load64x4(unsafe.Add(p, 3*size64x4)).Add(c03)
		c10, c11 = load64x4(q).Add(c10), load64x4(unsafe.Add(q, size64x4)).Add(c11)
		c12, c13 = load64x4(unsafe.Add(q, 2*size64x4)).Add(c12), load64x4(unsafe.Add(q, 3*size64x4)).Add(c13)
	}
	store64x4(p, c00, c01, c02, c03)
	store64x4(q, c10, c11, c12, c13)
	archsimd.ClearAVXUpperBits()
}

// step64x4 is one step of k: two elements of a, rs bytes apart, by a row of b.
func step64x4(a unsafe.Pointer, rs int, b unsafe.Pointer, c00, c01, c02, c03, c10, c11, c12, c13 f64x4) (_, _, _, _, _, _, _, _ f64x4) {
	x0 := archsimd.LoadFloat64x2((*[2]float64)(a)).Broadcast1To4()
	x1 := archsimd.LoadFloat64x2((*[2]float64)(unsafe.Add(a, rs))).Broadcast1To4()
	y := load64x4(b)
	c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
	y = load64x4(unsafe.Add(b, size64x4))
	c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
	y = load64x4(unsafe.Add(b, 2*size64x4))
	c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
	y = load64x4(unsafe.Add(b, 3*size64x4))
	c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
	return c00, c01, c02, c03, c10, c11, c12, c13
}

func load64x4(p unsafe.Pointer) f64x4 {
	return archsimd.LoadFloat64x4((*[4]float64)(p))
}

func store64x4(p unsafe.Pointer, x0, x1, x2, x3 f64x4) {
	x0.Store((*[4]float64)(p))
	x1.Store((*[4]float64)(unsafe.Add(p, size64x4)))
	x2.Store((*[4]float64)(unsafe.Add(p, 2*size64x4)))
	x3.Store((*[4]float64)(unsafe.Add(p, 3*size64x4)))
}
