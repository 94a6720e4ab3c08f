// Code generated from tile32x16.go by go test -run TestTheTilesOfAllVectorsAreOneTile -update; DO NOT EDIT.

//go:build goexperiment.simd && amd64

package conv

import (
	"simd/archsimd"
	"unsafe"
)

type f32x8 = archsimd.Float32x8

const lanes32x8, size32x8 = 8, int(unsafe.Sizeof(f32x8{}))

//go:nocheckptr
func at32x8(p unsafe.Pointer) f32x8 {
	return archsimd.LoadFloat32x8((*[8]float32)(p))
}

//go:nocheckptr
func put32x8(p unsafe.Pointer, v f32x8) { v.Store((*[8]float32)(p)) }

// tile32x8 is Tile.
//
//go:nocheckptr
func tile32x8(a []float32, lda, step int, b []float32, ldb int, off []int, c []float32, ldc, ldv int, add bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 f32x8
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	const size = int(unsafe.Sizeof(a[0]))
	lda, step, ldb, ldc, ldv = size*lda, size*step, size*ldb, size*ldc, size*ldv
	if add {
		c00, c01 = at32x8(pc), at32x8(unsafe.Add(pc, ldv))
		c10, c11 = at32x8(unsafe.Add(pc, ldc)), at32x8(unsafe.Add(pc, ldc+ldv))
		c20, c21 = at32x8(unsafe.Add(pc, 2*ldc)), at32x8(unsafe.Add(pc, 2*ldc+ldv))
		c30, c31 = at32x8(unsafe.Add(pc, 3*ldc)), at32x8(unsafe.Add(pc, 3*ldc+ldv))
	}
	k := 0
	for ; k+4 <= len(off); k += 4 {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x8(pa, lda, unsafe.Add(pb, size*off[k+0]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x8(pa, lda, unsafe.Add(pb, size*off[k+1]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x8(pa, lda, unsafe.Add(pb, size*off[k+2]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x8(pa, lda, unsafe.Add(pb, size*off[k+3]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	for ; k < len(off); k++ {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32x8(pa, lda, unsafe.Add(pb, size*off[k]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	put32x8(pc, c00)
	put32x8(unsafe.Add(pc, ldv), c01)
	put32x8(unsafe.Add(pc, ldc), c10)
	put32x8(unsafe.Add(pc, ldc+ldv), c11)
	put32x8(unsafe.Add(pc, 2*ldc), c20)
	put32x8(unsafe.Add(pc, 2*ldc+ldv), c21)
	put32x8(unsafe.Add(pc, 3*ldc), c30)
	put32x8(unsafe.Add(pc, 3*ldc+ldv), c31)
	archsimd.ClearAVXUpperBits()
}

// step32x8 is one step of a sum.
//
//go:nocheckptr
func step32x8(a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, c00, c01, c10, c11, c20, c21, c30, c31 f32x8) (_, _, _, _, _, _, _, _ f32x8) {
	x, y := at32x8(b), at32x8(unsafe.Add(b, ldb))
	c00, c01 = at32x8(a).MulAdd(x, c00), at32x8(a).MulAdd(y, c01)
	a = unsafe.Add(a, lda)
	c10, c11 = at32x8(a).MulAdd(x, c10), at32x8(a).MulAdd(y, c11)
	a = unsafe.Add(a, lda)
	c20, c21 = at32x8(a).MulAdd(x, c20), at32x8(a).MulAdd(y, c21)
	a = unsafe.Add(a, lda)
	c30, c31 = at32x8(a).MulAdd(x, c30), at32x8(a).MulAdd(y, c31)
	return c00, c01, c10, c11, c20, c21, c30, c31
}

// splat32x8 is Splat.
func splat32x8(o, x []float32) {
	for k := range len(o) / lanes32x8 {
		archsimd.LoadFloat32x4Slice(x[k:]).Broadcast1To8().StoreSlice(o[k*lanes32x8:])
	}
	archsimd.ClearAVXUpperBits()
}

// sums32x8 is Sums.
func sums32x8(o, x []float32) {
	for k := 0; k+4 <= len(o); k += 4 {
		p := unsafe.Pointer(&x[k*lanes32x8])
		s0, s1 := narrow32x8(at32x8(p)), narrow32x8(at32x8(unsafe.Add(p, size32x8)))
		s2, s3 := narrow32x8(at32x8(unsafe.Add(p, 2*size32x8))), narrow32x8(at32x8(unsafe.Add(p, 3*size32x8)))
		put32(o[k:], s0.AddPairs(s1), s2.AddPairs(s3))
	}
	archsimd.ClearAVXUpperBits()
}
