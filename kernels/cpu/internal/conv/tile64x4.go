// Code generated from tile32x16.go by go test -run TestTheTilesOfAllVectorsAreOneTile -update; DO NOT EDIT.

//go:build goexperiment.simd && amd64

package conv

import (
	"simd/archsimd"
	"unsafe"
)

type f64x4 = archsimd.Float64x4

const lanes64x4, size64x4 = 4, int(unsafe.Sizeof(f64x4{}))

//go:nocheckptr
func at64x4(p unsafe.Pointer) f64x4 {
	return archsimd.LoadFloat64x4((*[4]float64)(p))
}

//go:nocheckptr
func put64x4(p unsafe.Pointer, v f64x4) { v.Store((*[4]float64)(p)) }

// tile64x4 is Tile.
//
//go:nocheckptr
func tile64x4(a []float64, lda, step int, b []float64, ldb int, off []int, c []float64, ldc, ldv int, add bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 f64x4
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	const size = int(unsafe.Sizeof(a[0]))
	lda, step, ldb, ldc, ldv = size*lda, size*step, size*ldb, size*ldc, size*ldv
	if add {
		c00, c01 = at64x4(pc), at64x4(unsafe.Add(pc, ldv))
		c10, c11 = at64x4(unsafe.Add(pc, ldc)), at64x4(unsafe.Add(pc, ldc+ldv))
		c20, c21 = at64x4(unsafe.Add(pc, 2*ldc)), at64x4(unsafe.Add(pc, 2*ldc+ldv))
		c30, c31 = at64x4(unsafe.Add(pc, 3*ldc)), at64x4(unsafe.Add(pc, 3*ldc+ldv))
	}
	k := 0
	for ; k+4 <= len(off); k += 4 {
		c00, c01, c10, c11, c20, c21, c30, c31 = step64x4(pa, lda, unsafe.Add(pb, size*off[k+0]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64x4(pa, lda, unsafe.Add(pb, size*off[k+1]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64x4(pa, lda, unsafe.Add(pb, size*off[k+2]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64x4(pa, lda, unsafe.Add(pb, size*off[k+3]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	for ; k < len(off); k++ {
		c00, c01, c10, c11, c20, c21, c30, c31 = step64x4(pa, lda, unsafe.Add(pb, size*off[k]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	put64x4(pc, c00)
	put64x4(unsafe.Add(pc, ldv), c01)
	put64x4(unsafe.Add(pc, ldc), c10)
	put64x4(unsafe.Add(pc, ldc+ldv), c11)
	put64x4(unsafe.Add(pc, 2*ldc), c20)
	put64x4(unsafe.Add(pc, 2*ldc+ldv), c21)
	put64x4(unsafe.Add(pc, 3*ldc), c30)
	put64x4(unsafe.Add(pc, 3*ldc+ldv), c31)
	archsimd.ClearAVXUpperBits()
}

// step64x4 is one step of a sum.
//
//go:nocheckptr
func step64x4(a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, c00, c01, c10, c11, c20, c21, c30, c31 f64x4) (_, _, _, _, _, _, _, _ f64x4) {
	x, y := at64x4(b), at64x4(unsafe.Add(b, ldb))
	c00, c01 = at64x4(a).MulAdd(x, c00), at64x4(a).MulAdd(y, c01)
	a = unsafe.Add(a, lda)
	c10, c11 = at64x4(a).MulAdd(x, c10), at64x4(a).MulAdd(y, c11)
	a = unsafe.Add(a, lda)
	c20, c21 = at64x4(a).MulAdd(x, c20), at64x4(a).MulAdd(y, c21)
	a = unsafe.Add(a, lda)
	c30, c31 = at64x4(a).MulAdd(x, c30), at64x4(a).MulAdd(y, c31)
	return c00, c01, c10, c11, c20, c21, c30, c31
}

// splat64x4 is Splat.
func splat64x4(o, x []float64) {
	for k := range len(o) / lanes64x4 {
		archsimd.LoadFloat64x2Slice(x[k:]).Broadcast1To4().StoreSlice(o[k*lanes64x4:])
	}
	archsimd.ClearAVXUpperBits()
}

// sums64x4 is Sums.
func sums64x4(o, x []float64) {
	for k := 0; k+4 <= len(o); k += 4 {
		p := unsafe.Pointer(&x[k*lanes64x4])
		s0, s1 := narrow64x4(at64x4(p)), narrow64x4(at64x4(unsafe.Add(p, size64x4)))
		s2, s3 := narrow64x4(at64x4(unsafe.Add(p, 2*size64x4))), narrow64x4(at64x4(unsafe.Add(p, 3*size64x4)))
		put64(o[k:], s0.AddPairs(s1), s2.AddPairs(s3))
	}
	archsimd.ClearAVXUpperBits()
}
