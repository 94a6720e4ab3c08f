//go:build goexperiment.simd && amd64

package gemm

import (
	"simd/archsimd"
	"unsafe"
)

type f32x16 = archsimd.Float32x16

// lanes32x16 is how many elements are in a vector, and size32x16 how many bytes.
const lanes32x16, size32x16 = 16, int(unsafe.Sizeof(f32x16{}))

// tile32x16 multiplies tiles of two rows of four vectors.
func tile32x16(k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 f32x16
	pa, pb := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	const size = int(unsafe.Sizeof(a[0]))
	rs, cs, ldb = size*rs, size*cs, size*ldb
	for {
		c00, c01, c02, c03, c10, c11, c12, c13 = step32x16(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32x16(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32x16(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
		c00, c01, c02, c03, c10, c11, c12, c13 = step32x16(pa, rs, pb, c00, c01, c02, c03, c10, c11, c12, c13)
		if k--; k == 0 {
			break
		}
		pa, pb = unsafe.Add(pa, cs), unsafe.Add(pb, ldb)
	}
	p, q := unsafe.Pointer(unsafe.SliceData(c)), unsafe.Pointer(unsafe.SliceData(c[ldc:]))
	if add {
		c00, c01 = load32x16(p).Add(c00), load32x16(unsafe.Add(p, size32x16)).Add(c01)
		c02, c03 = load32x16(unsafe.Add(p, 2*size32x16)).Add(c02), load32x16(unsafe.Add(p, 3*size32x16)).Add(c03)
		c10, c11 = load32x16(q).Add(c10), load32x16(unsafe.Add(q, size32x16)).Add(c11)
		c12, c13 = load32x16(unsafe.Add(q, 2*size32x16)).Add(c12), load32x16(unsafe.Add(q, 3*size32x16)).Add(c13)
	}
	store32x16(p, c00, c01, c02, c03)
	store32x16(q, c10, c11, c12, c13)
	archsimd.ClearAVXUpperBits()
}

// step32x16 is one step of k: two elements of a, rs bytes apart, by a row of b.
func step32x16(a unsafe.Pointer, rs int, b unsafe.Pointer, c00, c01, c02, c03, c10, c11, c12, c13 f32x16) (_, _, _, _, _, _, _, _ f32x16) {
	x0 := archsimd.LoadFloat32x4((*[4]float32)(a)).Broadcast1To16()
	x1 := archsimd.LoadFloat32x4((*[4]float32)(unsafe.Add(a, rs))).Broadcast1To16()
	y := load32x16(b)
	c00, c10 = y.MulAdd(x0, c00), y.MulAdd(x1, c10)
	y = load32x16(unsafe.Add(b, size32x16))
	c01, c11 = y.MulAdd(x0, c01), y.MulAdd(x1, c11)
	y = load32x16(unsafe.Add(b, 2*size32x16))
	c02, c12 = y.MulAdd(x0, c02), y.MulAdd(x1, c12)
	y = load32x16(unsafe.Add(b, 3*size32x16))
	c03, c13 = y.MulAdd(x0, c03), y.MulAdd(x1, c13)
	return c00, c01, c02, c03, c10, c11, c12, c13
}

func load32x16(p unsafe.Pointer) f32x16 {
	return archsimd.LoadFloat32x16((*[16]float32)(p))
}

func store32x16(p unsafe.Pointer, x0, x1, x2, x3 f32x16) {
	x0.Store((*[16]float32)(p))
	x1.Store((*[16]float32)(unsafe.Add(p, size32x16)))
	x2.Store((*[16]float32)(unsafe.Add(p, 2*size32x16)))
	x3.Store((*[16]float32)(unsafe.Add(p, 3*size32x16)))
}
