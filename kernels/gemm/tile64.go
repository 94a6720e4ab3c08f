//go:build goexperiment.simd && amd64

package gemm

import (
	"simd/archsimd"
	"unsafe"
)

// tile64by512 multiplies tiles of 2×32.
func tile64by512(k int, a []float64, rs, cs int, b []float64, ldb int, c []float64, ldc int, add bool) {
	load := func(p unsafe.Pointer) archsimd.Float64x8 { return archsimd.LoadFloat64x8((*[8]float64)(p)) }
	each := func(p unsafe.Pointer) archsimd.Float64x8 {
		return archsimd.LoadFloat64x2((*[2]float64)(p)).Broadcast1To8()
	}
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float64x8
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 8*rs, 8*cs, 8*ldb
	for i, j := 0, 0; k > 0; k-- {
		at, row := unsafe.Add(pa, i), unsafe.Add(pb, j)
		x0, x1 := each(at), each(unsafe.Add(at, rs))
		y := load(row)
		c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
		y = load(unsafe.Add(row, 64))
		c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
		y = load(unsafe.Add(row, 128))
		c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
		y = load(unsafe.Add(row, 192))
		c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
		i, j = i+cs, j+ldb
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load(p).Add(c00), load(unsafe.Add(p, 64)).Add(c01)
		c02, c03 = load(unsafe.Add(p, 128)).Add(c02), load(unsafe.Add(p, 192)).Add(c03)
		c10, c11 = load(q).Add(c10), load(unsafe.Add(q, 64)).Add(c11)
		c12, c13 = load(unsafe.Add(q, 128)).Add(c12), load(unsafe.Add(q, 192)).Add(c13)
	}
	store := func(p unsafe.Pointer, v archsimd.Float64x8) { v.Store((*[8]float64)(p)) }
	store(p, c00)
	store(unsafe.Add(p, 64), c01)
	store(unsafe.Add(p, 128), c02)
	store(unsafe.Add(p, 192), c03)
	store(q, c10)
	store(unsafe.Add(q, 64), c11)
	store(unsafe.Add(q, 128), c12)
	store(unsafe.Add(q, 192), c13)
	archsimd.ClearAVXUpperBits()
}

// tile64by256 multiplies tiles of 2×16.
func tile64by256(k int, a []float64, rs, cs int, b []float64, ldb int, c []float64, ldc int, add bool) {
	load := func(p unsafe.Pointer) archsimd.Float64x4 { return archsimd.LoadFloat64x4((*[4]float64)(p)) }
	each := func(p unsafe.Pointer) archsimd.Float64x4 {
		return archsimd.LoadFloat64x2((*[2]float64)(p)).Broadcast1To4()
	}
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float64x4
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 8*rs, 8*cs, 8*ldb
	for i, j := 0, 0; k > 0; k-- {
		at, row := unsafe.Add(pa, i), unsafe.Add(pb, j)
		x0, x1 := each(at), each(unsafe.Add(at, rs))
		y := load(row)
		c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
		y = load(unsafe.Add(row, 32))
		c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
		y = load(unsafe.Add(row, 64))
		c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
		y = load(unsafe.Add(row, 96))
		c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
		i, j = i+cs, j+ldb
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load(p).Add(c00), load(unsafe.Add(p, 32)).Add(c01)
		c02, c03 = load(unsafe.Add(p, 64)).Add(c02), load(unsafe.Add(p, 96)).Add(c03)
		c10, c11 = load(q).Add(c10), load(unsafe.Add(q, 32)).Add(c11)
		c12, c13 = load(unsafe.Add(q, 64)).Add(c12), load(unsafe.Add(q, 96)).Add(c13)
	}
	store := func(p unsafe.Pointer, v archsimd.Float64x4) { v.Store((*[4]float64)(p)) }
	store(p, c00)
	store(unsafe.Add(p, 32), c01)
	store(unsafe.Add(p, 64), c02)
	store(unsafe.Add(p, 96), c03)
	store(q, c10)
	store(unsafe.Add(q, 32), c11)
	store(unsafe.Add(q, 64), c12)
	store(unsafe.Add(q, 96), c13)
	archsimd.ClearAVXUpperBits()
}
