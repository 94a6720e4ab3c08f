//go:build goexperiment.simd && amd64

package gemm

import (
	"simd/archsimd"
	"unsafe"
)

// tile64by512 multiplies tiles of 2×32.
func tile64by512(k int, a []float64, rs, cs int, b []float64, ldb int, c []float64, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float64x8
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 8*rs, 8*cs, 8*ldb
	for {
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load64by512(p).Add(c00), load64by512(unsafe.Add(p, 64)).Add(c01)
		c02, c03 = load64by512(unsafe.Add(p, 128)).Add(c02), load64by512(unsafe.Add(p, 192)).Add(c03)
		c10, c11 = load64by512(q).Add(c10), load64by512(unsafe.Add(q, 64)).Add(c11)
		c12, c13 = load64by512(unsafe.Add(q, 128)).Add(c12), load64by512(unsafe.Add(q, 192)).Add(c13)
	}
	store64by512(p, c00, c01, c02, c03)
	store64by512(q, c10, c11, c12, c13)
	archsimd.ClearAVXUpperBits()
}

// step64by512 is one step of k: two elements of a, rs bytes apart, by a row of b.
func step64by512(a unsafe.Pointer, rs int, b unsafe.Pointer, c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float64x8) (_, _, _, _, _, _, _, _ archsimd.Float64x8) {
	x0 := archsimd.LoadFloat64x2((*[2]float64)(a)).Broadcast1To8()
	x1 := archsimd.LoadFloat64x2((*[2]float64)(unsafe.Add(a, rs))).Broadcast1To8()
	y := load64by512(b)
	c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
	y = load64by512(unsafe.Add(b, 64))
	c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
	y = load64by512(unsafe.Add(b, 128))
	c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
	y = load64by512(unsafe.Add(b, 192))
	c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
	return c00, c01, c02, c03, c10, c11, c12, c13
}

func load64by512(p unsafe.Pointer) archsimd.Float64x8 {
	return archsimd.LoadFloat64x8((*[8]float64)(p))
}

func store64by512(p unsafe.Pointer, x0, x1, x2, x3 archsimd.Float64x8) {
	x0.Store((*[8]float64)(p))
	x1.Store((*[8]float64)(unsafe.Add(p, 64)))
	x2.Store((*[8]float64)(unsafe.Add(p, 128)))
	x3.Store((*[8]float64)(unsafe.Add(p, 192)))
}

// tile64by256 multiplies tiles of 2×16.
func tile64by256(k int, a []float64, rs, cs int, b []float64, ldb int, c []float64, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float64x4
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 8*rs, 8*cs, 8*ldb
	for {
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step64by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load64by256(p).Add(c00), load64by256(unsafe.Add(p, 32)).Add(c01)
		c02, c03 = load64by256(unsafe.Add(p, 64)).Add(c02), load64by256(unsafe.Add(p, 96)).Add(c03)
		c10, c11 = load64by256(q).Add(c10), load64by256(unsafe.Add(q, 32)).Add(c11)
		c12, c13 = load64by256(unsafe.Add(q, 64)).Add(c12), load64by256(unsafe.Add(q, 96)).Add(c13)
	}
	store64by256(p, c00, c01, c02, c03)
	store64by256(q, c10, c11, c12, c13)
	archsimd.ClearAVXUpperBits()
}

// step64by256 is one step of k: two elements of a, rs bytes apart, by a row of b.
func step64by256(a unsafe.Pointer, rs int, b unsafe.Pointer, c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float64x4) (_, _, _, _, _, _, _, _ archsimd.Float64x4) {
	x0 := archsimd.LoadFloat64x2((*[2]float64)(a)).Broadcast1To4()
	x1 := archsimd.LoadFloat64x2((*[2]float64)(unsafe.Add(a, rs))).Broadcast1To4()
	y := load64by256(b)
	c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
	y = load64by256(unsafe.Add(b, 32))
	c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
	y = load64by256(unsafe.Add(b, 64))
	c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
	y = load64by256(unsafe.Add(b, 96))
	c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
	return c00, c01, c02, c03, c10, c11, c12, c13
}

func load64by256(p unsafe.Pointer) archsimd.Float64x4 {
	return archsimd.LoadFloat64x4((*[4]float64)(p))
}

func store64by256(p unsafe.Pointer, x0, x1, x2, x3 archsimd.Float64x4) {
	x0.Store((*[4]float64)(p))
	x1.Store((*[4]float64)(unsafe.Add(p, 32)))
	x2.Store((*[4]float64)(unsafe.Add(p, 64)))
	x3.Store((*[4]float64)(unsafe.Add(p, 96)))
}
