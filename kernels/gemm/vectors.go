//go:build goexperiment.simd && amd64

package gemm

import (
	"simd/archsimd"
	"unsafe"
)

// A tile is 2×4 vectors: the compiler keeps 15 registers from one step of a loop to the next, and larger tiles spill. Of its 10 instructions a
// step that need the multiplying ports, 8 multiply.

func tiles32() (ks []*Kernel[float32]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float32]{Name: "avx512", tile: tile[float32]{2, 64, 3, tile32by512, turn32(64)}})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float32]{Name: "avx2", tile: tile[float32]{2, 32, 3, tile32by256, turn32(32)}})
	}
	return ks
}

func tiles64() (ks []*Kernel[float64]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float64]{Name: "avx512", tile: tile[float64]{2, 32, 1, tile64by512, turn64(32)}})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float64]{Name: "avx2", tile: tile[float64]{2, 16, 1, tile64by256, turn64(16)}})
	}
	return ks
}

// turn32 turns 4×4 elements at a time.
func turn32(cols int) func(k int, to, b []float32, ldb int) {
	return func(k int, to, b []float32, ldb int) {
		p := 0
		for ; p+4 <= k; p += 4 {
			for j := 0; j < cols; j += 4 {
				r0, r1, r2, r3 := load4(b[j*ldb+p:]), load4(b[(j+1)*ldb+p:]), load4(b[(j+2)*ldb+p:]), load4(b[(j+3)*ldb+p:])
				l0, h0 := r0.InterleaveLo(r1).AsUint64x2(), r0.InterleaveHi(r1).AsUint64x2()
				l1, h1 := r2.InterleaveLo(r3).AsUint64x2(), r2.InterleaveHi(r3).AsUint64x2()
				store4(to[p*cols+j:], l0.InterleaveLo(l1))
				store4(to[(p+1)*cols+j:], l0.InterleaveHi(l1))
				store4(to[(p+2)*cols+j:], h0.InterleaveLo(h1))
				store4(to[(p+3)*cols+j:], h0.InterleaveHi(h1))
			}
		}
		turnRest(p, k, cols, to, b, ldb)
	}
}

func load4(s []float32) archsimd.Uint32x4 {
	return archsimd.LoadUint32x4((*[4]uint32)(unsafe.Pointer((*[4]float32)(s))))
}

func store4(s []float32, v archsimd.Uint64x2) {
	v.Store((*[2]uint64)(unsafe.Pointer((*[4]float32)(s))))
}

// turn64 turns 2×2 elements at a time.
func turn64(cols int) func(k int, to, b []float64, ldb int) {
	return func(k int, to, b []float64, ldb int) {
		p := 0
		for ; p+2 <= k; p += 2 {
			for j := 0; j < cols; j += 2 {
				x, y := load2(b[j*ldb+p:]), load2(b[(j+1)*ldb+p:])
				store2(to[p*cols+j:], x.InterleaveLo(y))
				store2(to[(p+1)*cols+j:], x.InterleaveHi(y))
			}
		}
		turnRest(p, k, cols, to, b, ldb)
	}
}

func load2(s []float64) archsimd.Uint64x2 {
	return archsimd.LoadUint64x2((*[2]uint64)(unsafe.Pointer((*[2]float64)(s))))
}

func store2(s []float64, v archsimd.Uint64x2) {
	v.Store((*[2]uint64)(unsafe.Pointer((*[2]float64)(s))))
}

func turnRest[T Float](p, k, cols int, to, b []T, ldb int) {
	for ; p < k; p++ {
		for j := range cols {
			to[p*cols+j] = b[j*ldb+p]
		}
	}
}
