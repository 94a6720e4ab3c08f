//go:build goexperiment.simd && amd64

package conv

import (
	"simd/archsimd"
	"unsafe"
)

type f32x16 = archsimd.Float32x16

const lanes32x16, size32x16 = 16, int(unsafe.Sizeof(f32x16{}))

//go:nocheckptr
func at32x16(p unsafe.Pointer) f32x16 {
	return archsimd.LoadFloat32x16((*[16]float32)(p))
}

//go:nocheckptr
func put32x16(p unsafe.Pointer, v f32x16) { v.Store((*[16]float32)(p)) }

// tile32x16 is Tile.
//
//go:nocheckptr
func tile32x16(a []float32, lda, step int, b []float32, ldb int, off []int, c []float32, ldc, ldv int, add bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 f32x16
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	const size = int(unsafe.Sizeof(a[0]))
	lda, step, ldb, ldc, ldv = size*lda, size*step, size*ldb, size*ldc, size*ldv
	if add {
		c00, c01 = at32x16(pc), at32x16(unsafe.Add(pc, ldv))
		c10, c11 = at32x16(unsafe.Add(pc, ldc)), at32x16(unsafe.Add(pc, ldc+ldv))
		c20, c21 = at32x16(unsafe.Add(pc, 2*ldc)), at32x16(unsafe.Add(pc, 2*ldc+ldv))
		c30, c31 = at32x16(unsafe.Add(pc, 3*ldc)), at32x16(unsafe.Add(pc, 3*ldc+ldv))
	}
	k := 0
	for ; k+4 <= len(off); k += 4 {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x16(pa, lda, unsafe.Add(pb, size*off[k+0]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x16(pa, lda, unsafe.Add(pb, size*off[k+1]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x16(pa, lda, unsafe.Add(pb, size*off[k+2]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x16(pa, lda, unsafe.Add(pb, size*off[k+3]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	for ; k < len(off); k++ {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x16(pa, lda, unsafe.Add(pb, size*off[k]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	put32x16(pc, c00)
	put32x16(unsafe.Add(pc, ldv), c01)
	put32x16(unsafe.Add(pc, ldc), c10)
	put32x16(unsafe.Add(pc, ldc+ldv), c11)
	put32x16(unsafe.Add(pc, 2*ldc), c20)
	put32x16(unsafe.Add(pc, 2*ldc+ldv), c21)
	put32x16(unsafe.Add(pc, 3*ldc), c30)
	put32x16(unsafe.Add(pc, 3*ldc+ldv), c31)
	archsimd.ClearAVXUpperBits()
}

// step32x16 is one step of a sum.
//
//go:nocheckptr
func step32x16(a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, c00, c01, c10, c11, c20, c21, c30, c31 f32x16) (_, _, _, _, _, _, _, _ f32x16) {
	x, y := at32x16(b), at32x16(unsafe.Add(b, ldb))
	c00, c01 = at32x16(a).MulAdd(x, c00), at32x16(a).MulAdd(y, c01)
	a = unsafe.Add(a, lda)
	c10, c11 = at32x16(a).MulAdd(x, c10), at32x16(a).MulAdd(y, c11)
	a = unsafe.Add(a, lda)
	c20, c21 = at32x16(a).MulAdd(x, c20), at32x16(a).MulAdd(y, c21)
	a = unsafe.Add(a, lda)
	c30, c31 = at32x16(a).MulAdd(x, c30), at32x16(a).MulAdd(y, c31)
	return c00, c01, c10, c11, c20, c21, c30, c31
}

// splat32x16 is Splat.
func splat32x16(o, x []float32) {
	for k := range len(o) / lanes32x16 {
		archsimd.LoadFloat32x4Slice(x[k:]).Broadcast1To16().StoreSlice(o[k*lanes32x16:])
	}
	archsimd.ClearAVXUpperBits()
}

// sums32x16 is Sums.
func sums32x16(o, x []float32) {
	for k := 0; k+4 <= len(o); k += 4 {
		p := unsafe.Pointer(&x[k*lanes32x16])
		s0, s1 := narrow32x16(at32x16(p)), narrow32x16(at32x16(unsafe.Add(p, size32x16)))
		s2, s3 := narrow32x16(at32x16(unsafe.Add(p, 2*size32x16))), narrow32x16(at32x16(unsafe.Add(p, 3*size32x16)))
		put32(o[k:], s0.AddPairs(s1), s2.AddPairs(s3))
	}
	archsimd.ClearAVXUpperBits()
}
