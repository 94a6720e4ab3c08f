//go:build goexperiment.simd && amd64

package gemm

import (
	"simd/archsimd"
	"unsafe"
)

// tile32by512 multiplies tiles of 2×64.
func tile32by512(k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float32x16
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 4*rs, 4*cs, 4*ldb
	for {
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by512(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load32by512(p).Add(c00), load32by512(unsafe.Add(p, 64)).Add(c01)
		c02, c03 = load32by512(unsafe.Add(p, 128)).Add(c02), load32by512(unsafe.Add(p, 192)).Add(c03)
		c10, c11 = load32by512(q).Add(c10), load32by512(unsafe.Add(q, 64)).Add(c11)
		c12, c13 = load32by512(unsafe.Add(q, 128)).Add(c12), load32by512(unsafe.Add(q, 192)).Add(c13)
	}
	store32by512(p, c00, c01, c02, c03)
	store32by512(q, c10, c11, c12, c13)
	archsimd.ClearAVXUpperBits()
}

// step32by512 is one step of k: two elements of a, rs bytes apart, by a row of b.
func step32by512(a unsafe.Pointer, rs int, b unsafe.Pointer, c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float32x16) (_, _, _, _, _, _, _, _ archsimd.Float32x16) {
	x0 := archsimd.LoadFloat32x4((*[4]float32)(a)).Broadcast1To16()
	x1 := archsimd.LoadFloat32x4((*[4]float32)(unsafe.Add(a, rs))).Broadcast1To16()
	y := load32by512(b)
	c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
	y = load32by512(unsafe.Add(b, 64))
	c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
	y = load32by512(unsafe.Add(b, 128))
	c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
	y = load32by512(unsafe.Add(b, 192))
	c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
	return c00, c01, c02, c03, c10, c11, c12, c13
}

func load32by512(p unsafe.Pointer) archsimd.Float32x16 {
	return archsimd.LoadFloat32x16((*[16]float32)(p))
}

func store32by512(p unsafe.Pointer, x0, x1, x2, x3 archsimd.Float32x16) {
	x0.Store((*[16]float32)(p))
	x1.Store((*[16]float32)(unsafe.Add(p, 64)))
	x2.Store((*[16]float32)(unsafe.Add(p, 128)))
	x3.Store((*[16]float32)(unsafe.Add(p, 192)))
}

// tile32by256 multiplies tiles of 2×32.
func tile32by256(k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float32x8
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	rs, cs, ldb = 4*rs, 4*cs, 4*ldb
	for {
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32by256(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load32by256(p).Add(c00), load32by256(unsafe.Add(p, 32)).Add(c01)
		c02, c03 = load32by256(unsafe.Add(p, 64)).Add(c02), load32by256(unsafe.Add(p, 96)).Add(c03)
		c10, c11 = load32by256(q).Add(c10), load32by256(unsafe.Add(q, 32)).Add(c11)
		c12, c13 = load32by256(unsafe.Add(q, 64)).Add(c12), load32by256(unsafe.Add(q, 96)).Add(c13)
	}
	store32by256(p, c00, c01, c02, c03)
	store32by256(q, c10, c11, c12, c13)
	archsimd.ClearAVXUpperBits()
}

// step32by256 is one step of k: two elements of a, rs bytes apart, by a row of b.
func step32by256(a unsafe.Pointer, rs int, b unsafe.Pointer, c00, c01, c02, c03, c10, c11, c12, c13 archsimd.Float32x8) (_, _, _, _, _, _, _, _ archsimd.Float32x8) {
	x0 := archsimd.LoadFloat32x4((*[4]float32)(a)).Broadcast1To8()
	x1 := archsimd.LoadFloat32x4((*[4]float32)(unsafe.Add(a, rs))).Broadcast1To8()
	y := load32by256(b)
	c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
	y = load32by256(unsafe.Add(b, 32))
	c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
	y = load32by256(unsafe.Add(b, 64))
	c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
	y = load32by256(unsafe.Add(b, 96))
	c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
	return c00, c01, c02, c03, c10, c11, c12, c13
}

func load32by256(p unsafe.Pointer) archsimd.Float32x8 {
	return archsimd.LoadFloat32x8((*[8]float32)(p))
}

func store32by256(p unsafe.Pointer, x0, x1, x2, x3 archsimd.Float32x8) {
	x0.Store((*[8]float32)(p))
	x1.Store((*[8]float32)(unsafe.Add(p, 32)))
	x2.Store((*[8]float32)(unsafe.Add(p, 64)))
	x3.Store((*[8]float32)(unsafe.Add(p, 96)))
}
