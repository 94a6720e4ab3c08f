//go:build goexperiment.simd && amd64

package gemm

import (
	"simd/archsimd"
	"unsafe"
)

// tile32by512 multiplies tiles of 2×64.
func tile32by512(k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, add bool) {
	load := func(p unsafe.Pointer) archsimd.Float32x16 { return archsimd.LoadFloat32x16((*[16]float32)(p)) }
	each := func(p unsafe.Pointer) archsimd.Float32x16 {
		return archsimd.LoadFloat32x4((*[4]float32)(p)).Broadcast1To16()
	}
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float32x16
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 4*rs, 4*cs, 4*ldb
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
	store := func(p unsafe.Pointer, v archsimd.Float32x16) { v.Store((*[16]float32)(p)) }
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

// tile32by256 multiplies tiles of 2×32.
func tile32by256(k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, add bool) {
	load := func(p unsafe.Pointer) archsimd.Float32x8 { return archsimd.LoadFloat32x8((*[8]float32)(p)) }
	each := func(p unsafe.Pointer) archsimd.Float32x8 {
		return archsimd.LoadFloat32x4((*[4]float32)(p)).Broadcast1To8()
	}
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float32x8
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 4*rs, 4*cs, 4*ldb
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
	store := func(p unsafe.Pointer, v archsimd.Float32x8) { v.Store((*[8]float32)(p)) }
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
