//go:build goexperiment.simd && amd64

package conv

import (
	"simd/archsimd"
	"unsafe"
)

// Pointers run past the last element that is used, and lanes that a mask leaves out may lie beyond the end: hence nocheckptr.
//
// The compiler keeps 15 vectors in registers: eight sums and two of the image leave room for a row of weights to be overwritten by each
// product, which is why a row is loaded once for each. Four steps at a time hide the moves with which a loop begins anew.

func vectors32() (ks []*Kernel[float32]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float32]{Name: "avx512", Lanes: 16, Tile: tile32by512, Splat: splat32by512, Sums: sums32by512,
			Copy: copy32by512, MaxPool: maxPool32by512, MaxPoolGrad: maxPoolGrad32by512})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float32]{Name: "avx2", Lanes: 8, Tile: tile32by256, Splat: splat32by256, Sums: sums32by256, Copy: copyRows[float32]})
	}
	return ks
}

func vectors64() (ks []*Kernel[float64]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float64]{Name: "avx512", Lanes: 8, Tile: tile64by512, Splat: splat64by512, Sums: sums64by512, Copy: copyRows[float64]})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float64]{Name: "avx2", Lanes: 4, Tile: tile64by256, Splat: splat64by256, Sums: sums64by256, Copy: copyRows[float64]})
	}
	return ks
}

//go:nocheckptr
func at32by512(p unsafe.Pointer) archsimd.Float32x16 {
	return archsimd.LoadFloat32x16((*[16]float32)(p))
}

//go:nocheckptr
func put32by512(p unsafe.Pointer, v archsimd.Float32x16) { v.Store((*[16]float32)(p)) }

//go:nocheckptr
func tile32by512(a []float32, lda, step int, b []float32, ldb int, off []int, c []float32, ldc, ldv int, add bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float32x16
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	lda, step, ldb, ldc, ldv = 4*lda, 4*step, 4*ldb, 4*ldc, 4*ldv
	if add {
		c00, c01 = at32by512(pc), at32by512(unsafe.Add(pc, ldv))
		c10, c11 = at32by512(unsafe.Add(pc, ldc)), at32by512(unsafe.Add(pc, ldc+ldv))
		c20, c21 = at32by512(unsafe.Add(pc, 2*ldc)), at32by512(unsafe.Add(pc, 2*ldc+ldv))
		c30, c31 = at32by512(unsafe.Add(pc, 3*ldc)), at32by512(unsafe.Add(pc, 3*ldc+ldv))
	}
	k := 0
	for ; k+4 <= len(off); k += 4 {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by512(pa, lda, unsafe.Add(pb, 4*off[k+0]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by512(pa, lda, unsafe.Add(pb, 4*off[k+1]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by512(pa, lda, unsafe.Add(pb, 4*off[k+2]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by512(pa, lda, unsafe.Add(pb, 4*off[k+3]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	for ; k < len(off); k++ {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by512(pa, lda, unsafe.Add(pb, 4*off[k]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	put32by512(pc, c00)
	put32by512(unsafe.Add(pc, ldv), c01)
	put32by512(unsafe.Add(pc, ldc), c10)
	put32by512(unsafe.Add(pc, ldc+ldv), c11)
	put32by512(unsafe.Add(pc, 2*ldc), c20)
	put32by512(unsafe.Add(pc, 2*ldc+ldv), c21)
	put32by512(unsafe.Add(pc, 3*ldc), c30)
	put32by512(unsafe.Add(pc, 3*ldc+ldv), c31)
	archsimd.ClearAVXUpperBits()
}

// step32by512 is one step of a sum.
//
//go:nocheckptr
func step32by512(a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float32x16) (_, _, _, _, _, _, _, _ archsimd.Float32x16) {
	x, y := at32by512(b), at32by512(unsafe.Add(b, ldb))
	c00, c01 = at32by512(a).MulAdd(x, c00), at32by512(a).MulAdd(y, c01)
	a = unsafe.Add(a, lda)
	c10, c11 = at32by512(a).MulAdd(x, c10), at32by512(a).MulAdd(y, c11)
	a = unsafe.Add(a, lda)
	c20, c21 = at32by512(a).MulAdd(x, c20), at32by512(a).MulAdd(y, c21)
	a = unsafe.Add(a, lda)
	c30, c31 = at32by512(a).MulAdd(x, c30), at32by512(a).MulAdd(y, c31)
	return c00, c01, c10, c11, c20, c21, c30, c31
}

func splat32by512(o, x []float32) {
	for k := range len(o) / 16 {
		archsimd.LoadFloat32x4Slice(x[k:]).Broadcast1To16().StoreSlice(o[k*16:])
	}
	archsimd.ClearAVXUpperBits()
}

func sums32by512(o, x []float32) {
	for k := 0; k+4 <= len(o); k += 4 {
		p := unsafe.Pointer(&x[k*16])
		s0 := narrow32by512(at32by512(unsafe.Add(p, 0)))
		s1 := narrow32by512(at32by512(unsafe.Add(p, 64)))
		s2 := narrow32by512(at32by512(unsafe.Add(p, 128)))
		s3 := narrow32by512(at32by512(unsafe.Add(p, 192)))
		s0.AddPairs(s1).AddPairs(s2.AddPairs(s3)).StoreSlice(o[k:])
	}
	archsimd.ClearAVXUpperBits()
}

func narrow32by512(v archsimd.Float32x16) archsimd.Float32x4 {
	h := v.GetLo().Add(v.GetHi())
	return h.GetLo().Add(h.GetHi())
}

//go:nocheckptr
func at32by256(p unsafe.Pointer) archsimd.Float32x8 { return archsimd.LoadFloat32x8((*[8]float32)(p)) }

//go:nocheckptr
func put32by256(p unsafe.Pointer, v archsimd.Float32x8) { v.Store((*[8]float32)(p)) }

//go:nocheckptr
func tile32by256(a []float32, lda, step int, b []float32, ldb int, off []int, c []float32, ldc, ldv int, add bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float32x8
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	lda, step, ldb, ldc, ldv = 4*lda, 4*step, 4*ldb, 4*ldc, 4*ldv
	if add {
		c00, c01 = at32by256(pc), at32by256(unsafe.Add(pc, ldv))
		c10, c11 = at32by256(unsafe.Add(pc, ldc)), at32by256(unsafe.Add(pc, ldc+ldv))
		c20, c21 = at32by256(unsafe.Add(pc, 2*ldc)), at32by256(unsafe.Add(pc, 2*ldc+ldv))
		c30, c31 = at32by256(unsafe.Add(pc, 3*ldc)), at32by256(unsafe.Add(pc, 3*ldc+ldv))
	}
	k := 0
	for ; k+4 <= len(off); k += 4 {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by256(pa, lda, unsafe.Add(pb, 4*off[k+0]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by256(pa, lda, unsafe.Add(pb, 4*off[k+1]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by256(pa, lda, unsafe.Add(pb, 4*off[k+2]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by256(pa, lda, unsafe.Add(pb, 4*off[k+3]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	for ; k < len(off); k++ {
		c00, c01, c10, c11, c20, c21, c30, c31 = step32by256(pa, lda, unsafe.Add(pb, 4*off[k]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	put32by256(pc, c00)
	put32by256(unsafe.Add(pc, ldv), c01)
	put32by256(unsafe.Add(pc, ldc), c10)
	put32by256(unsafe.Add(pc, ldc+ldv), c11)
	put32by256(unsafe.Add(pc, 2*ldc), c20)
	put32by256(unsafe.Add(pc, 2*ldc+ldv), c21)
	put32by256(unsafe.Add(pc, 3*ldc), c30)
	put32by256(unsafe.Add(pc, 3*ldc+ldv), c31)
	archsimd.ClearAVXUpperBits()
}

// step32by256 is one step of a sum.
//
//go:nocheckptr
func step32by256(a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float32x8) (_, _, _, _, _, _, _, _ archsimd.Float32x8) {
	x, y := at32by256(b), at32by256(unsafe.Add(b, ldb))
	c00, c01 = at32by256(a).MulAdd(x, c00), at32by256(a).MulAdd(y, c01)
	a = unsafe.Add(a, lda)
	c10, c11 = at32by256(a).MulAdd(x, c10), at32by256(a).MulAdd(y, c11)
	a = unsafe.Add(a, lda)
	c20, c21 = at32by256(a).MulAdd(x, c20), at32by256(a).MulAdd(y, c21)
	a = unsafe.Add(a, lda)
	c30, c31 = at32by256(a).MulAdd(x, c30), at32by256(a).MulAdd(y, c31)
	return c00, c01, c10, c11, c20, c21, c30, c31
}

func splat32by256(o, x []float32) {
	for k := range len(o) / 8 {
		archsimd.LoadFloat32x4Slice(x[k:]).Broadcast1To8().StoreSlice(o[k*8:])
	}
	archsimd.ClearAVXUpperBits()
}

func sums32by256(o, x []float32) {
	for k := 0; k+4 <= len(o); k += 4 {
		p := unsafe.Pointer(&x[k*8])
		s0 := narrow32by256(at32by256(unsafe.Add(p, 0)))
		s1 := narrow32by256(at32by256(unsafe.Add(p, 32)))
		s2 := narrow32by256(at32by256(unsafe.Add(p, 64)))
		s3 := narrow32by256(at32by256(unsafe.Add(p, 96)))
		s0.AddPairs(s1).AddPairs(s2.AddPairs(s3)).StoreSlice(o[k:])
	}
	archsimd.ClearAVXUpperBits()
}

func narrow32by256(v archsimd.Float32x8) archsimd.Float32x4 {
	return v.GetLo().Add(v.GetHi())
}

//go:nocheckptr
func at64by512(p unsafe.Pointer) archsimd.Float64x8 { return archsimd.LoadFloat64x8((*[8]float64)(p)) }

//go:nocheckptr
func put64by512(p unsafe.Pointer, v archsimd.Float64x8) { v.Store((*[8]float64)(p)) }

//go:nocheckptr
func tile64by512(a []float64, lda, step int, b []float64, ldb int, off []int, c []float64, ldc, ldv int, add bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float64x8
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	lda, step, ldb, ldc, ldv = 8*lda, 8*step, 8*ldb, 8*ldc, 8*ldv
	if add {
		c00, c01 = at64by512(pc), at64by512(unsafe.Add(pc, ldv))
		c10, c11 = at64by512(unsafe.Add(pc, ldc)), at64by512(unsafe.Add(pc, ldc+ldv))
		c20, c21 = at64by512(unsafe.Add(pc, 2*ldc)), at64by512(unsafe.Add(pc, 2*ldc+ldv))
		c30, c31 = at64by512(unsafe.Add(pc, 3*ldc)), at64by512(unsafe.Add(pc, 3*ldc+ldv))
	}
	k := 0
	for ; k+4 <= len(off); k += 4 {
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by512(pa, lda, unsafe.Add(pb, 8*off[k+0]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by512(pa, lda, unsafe.Add(pb, 8*off[k+1]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by512(pa, lda, unsafe.Add(pb, 8*off[k+2]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by512(pa, lda, unsafe.Add(pb, 8*off[k+3]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	for ; k < len(off); k++ {
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by512(pa, lda, unsafe.Add(pb, 8*off[k]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	put64by512(pc, c00)
	put64by512(unsafe.Add(pc, ldv), c01)
	put64by512(unsafe.Add(pc, ldc), c10)
	put64by512(unsafe.Add(pc, ldc+ldv), c11)
	put64by512(unsafe.Add(pc, 2*ldc), c20)
	put64by512(unsafe.Add(pc, 2*ldc+ldv), c21)
	put64by512(unsafe.Add(pc, 3*ldc), c30)
	put64by512(unsafe.Add(pc, 3*ldc+ldv), c31)
	archsimd.ClearAVXUpperBits()
}

// step64by512 is one step of a sum.
//
//go:nocheckptr
func step64by512(a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float64x8) (_, _, _, _, _, _, _, _ archsimd.Float64x8) {
	x, y := at64by512(b), at64by512(unsafe.Add(b, ldb))
	c00, c01 = at64by512(a).MulAdd(x, c00), at64by512(a).MulAdd(y, c01)
	a = unsafe.Add(a, lda)
	c10, c11 = at64by512(a).MulAdd(x, c10), at64by512(a).MulAdd(y, c11)
	a = unsafe.Add(a, lda)
	c20, c21 = at64by512(a).MulAdd(x, c20), at64by512(a).MulAdd(y, c21)
	a = unsafe.Add(a, lda)
	c30, c31 = at64by512(a).MulAdd(x, c30), at64by512(a).MulAdd(y, c31)
	return c00, c01, c10, c11, c20, c21, c30, c31
}

func splat64by512(o, x []float64) {
	for k := range len(o) / 8 {
		archsimd.LoadFloat64x2Slice(x[k:]).Broadcast1To8().StoreSlice(o[k*8:])
	}
	archsimd.ClearAVXUpperBits()
}

func sums64by512(o, x []float64) {
	for k := 0; k+2 <= len(o); k += 2 {
		p := unsafe.Pointer(&x[k*8])
		s0 := narrow64by512(at64by512(unsafe.Add(p, 0)))
		s1 := narrow64by512(at64by512(unsafe.Add(p, 64)))
		s0.AddPairs(s1).StoreSlice(o[k:])
	}
	archsimd.ClearAVXUpperBits()
}

func narrow64by512(v archsimd.Float64x8) archsimd.Float64x2 {
	h := v.GetLo().Add(v.GetHi())
	return h.GetLo().Add(h.GetHi())
}

//go:nocheckptr
func at64by256(p unsafe.Pointer) archsimd.Float64x4 { return archsimd.LoadFloat64x4((*[4]float64)(p)) }

//go:nocheckptr
func put64by256(p unsafe.Pointer, v archsimd.Float64x4) { v.Store((*[4]float64)(p)) }

//go:nocheckptr
func tile64by256(a []float64, lda, step int, b []float64, ldb int, off []int, c []float64, ldc, ldv int, add bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float64x4
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	lda, step, ldb, ldc, ldv = 8*lda, 8*step, 8*ldb, 8*ldc, 8*ldv
	if add {
		c00, c01 = at64by256(pc), at64by256(unsafe.Add(pc, ldv))
		c10, c11 = at64by256(unsafe.Add(pc, ldc)), at64by256(unsafe.Add(pc, ldc+ldv))
		c20, c21 = at64by256(unsafe.Add(pc, 2*ldc)), at64by256(unsafe.Add(pc, 2*ldc+ldv))
		c30, c31 = at64by256(unsafe.Add(pc, 3*ldc)), at64by256(unsafe.Add(pc, 3*ldc+ldv))
	}
	k := 0
	for ; k+4 <= len(off); k += 4 {
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by256(pa, lda, unsafe.Add(pb, 8*off[k+0]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by256(pa, lda, unsafe.Add(pb, 8*off[k+1]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by256(pa, lda, unsafe.Add(pb, 8*off[k+2]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by256(pa, lda, unsafe.Add(pb, 8*off[k+3]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	for ; k < len(off); k++ {
		c00, c01, c10, c11, c20, c21, c30, c31 = step64by256(pa, lda, unsafe.Add(pb, 8*off[k]), ldb, c00, c01, c10, c11, c20, c21, c30, c31)
		pa = unsafe.Add(pa, step)
	}
	put64by256(pc, c00)
	put64by256(unsafe.Add(pc, ldv), c01)
	put64by256(unsafe.Add(pc, ldc), c10)
	put64by256(unsafe.Add(pc, ldc+ldv), c11)
	put64by256(unsafe.Add(pc, 2*ldc), c20)
	put64by256(unsafe.Add(pc, 2*ldc+ldv), c21)
	put64by256(unsafe.Add(pc, 3*ldc), c30)
	put64by256(unsafe.Add(pc, 3*ldc+ldv), c31)
	archsimd.ClearAVXUpperBits()
}

// step64by256 is one step of a sum.
//
//go:nocheckptr
func step64by256(a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, c00, c01, c10, c11, c20, c21, c30, c31 archsimd.Float64x4) (_, _, _, _, _, _, _, _ archsimd.Float64x4) {
	x, y := at64by256(b), at64by256(unsafe.Add(b, ldb))
	c00, c01 = at64by256(a).MulAdd(x, c00), at64by256(a).MulAdd(y, c01)
	a = unsafe.Add(a, lda)
	c10, c11 = at64by256(a).MulAdd(x, c10), at64by256(a).MulAdd(y, c11)
	a = unsafe.Add(a, lda)
	c20, c21 = at64by256(a).MulAdd(x, c20), at64by256(a).MulAdd(y, c21)
	a = unsafe.Add(a, lda)
	c30, c31 = at64by256(a).MulAdd(x, c30), at64by256(a).MulAdd(y, c31)
	return c00, c01, c10, c11, c20, c21, c30, c31
}

func splat64by256(o, x []float64) {
	for k := range len(o) / 4 {
		archsimd.LoadFloat64x2Slice(x[k:]).Broadcast1To4().StoreSlice(o[k*4:])
	}
	archsimd.ClearAVXUpperBits()
}

func sums64by256(o, x []float64) {
	for k := 0; k+2 <= len(o); k += 2 {
		p := unsafe.Pointer(&x[k*4])
		s0 := narrow64by256(at64by256(unsafe.Add(p, 0)))
		s1 := narrow64by256(at64by256(unsafe.Add(p, 32)))
		s0.AddPairs(s1).StoreSlice(o[k:])
	}
	archsimd.ClearAVXUpperBits()
}

func narrow64by256(v archsimd.Float64x4) archsimd.Float64x2 {
	return v.GetLo().Add(v.GetHi())
}
