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
		ks = append(ks, &Kernel[float32]{Name: "avx512", tile: tile[float32]{2, 4 * lanes32x16, 3, tile32x16, turn32}})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float32]{Name: "avx2", tile: tile[float32]{2, 4 * lanes32x8, 3, tile32x8, turn32}})
	}
	return ks
}

func tiles64() (ks []*Kernel[float64]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float64]{Name: "avx512", tile: tile[float64]{2, 4 * lanes64x8, 1, tile64x8, turn64}})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float64]{Name: "avx2", tile: tile[float64]{2, 4 * lanes64x4, 1, tile64x4, turn64}})
	}
	return ks
}

// turn32 turns 4×4 elements at a time, along four rows of b.
func turn32(k, cols int, to []float32, ldt int, b []float32, ldb int) {
	row, step := 4*ldt, 4*ldb
	for j := 0; j+4 <= cols; j += 4 {
		from, o := unsafe.Pointer(&b[j*ldb]), unsafe.Pointer(&to[j])
		for p, q := 0, 0; p+4 <= k; p, q = p+4, q+4*row {
			x, y := unsafe.Add(from, 4*p), unsafe.Add(o, q)
			r0, r1 := load4(x), load4(unsafe.Add(x, step))
			r2, r3 := load4(unsafe.Add(x, 2*step)), load4(unsafe.Add(x, 3*step))
			l0, h0 := r0.InterleaveLo(r1).AsUint64x2(), r0.InterleaveHi(r1).AsUint64x2()
			l1, h1 := r2.InterleaveLo(r3).AsUint64x2(), r2.InterleaveHi(r3).AsUint64x2()
			store2(y, l0.InterleaveLo(l1))
			store2(unsafe.Add(y, row), l0.InterleaveHi(l1))
			store2(unsafe.Add(y, 2*row), h0.InterleaveLo(h1))
			store2(unsafe.Add(y, 3*row), h0.InterleaveHi(h1))
		}
	}
	turnRest(k, cols, 4, to, ldt, b, ldb)
}

// turn64 turns 2×2 elements at a time, along two rows of b.
func turn64(k, cols int, to []float64, ldt int, b []float64, ldb int) {
	row, step := 8*ldt, 8*ldb
	for j := 0; j+2 <= cols; j += 2 {
		from, o := unsafe.Pointer(&b[j*ldb]), unsafe.Pointer(&to[j])
		for p, q := 0, 0; p+2 <= k; p, q = p+2, q+2*row {
			x, y := unsafe.Add(from, 8*p), unsafe.Add(o, q)
			r0, r1 := load2(x), load2(unsafe.Add(x, step))
			store2(y, r0.InterleaveLo(r1))
			store2(unsafe.Add(y, row), r0.InterleaveHi(r1))
		}
	}
	turnRest(k, cols, 2, to, ldt, b, ldb)
}

// turnRest turns what squares of n×n do not cover.
func turnRest[T Float](k, cols, n int, to []T, ldt int, b []T, ldb int) {
	for j := range cols {
		from := b[j*ldb:][:k]
		p := 0
		if j < cols-cols%n {
			p = k - k%n
		}
		for ; p < k; p++ {
			to[p*ldt+j] = from[p]
		}
	}
}

func load4(p unsafe.Pointer) archsimd.Uint32x4     { return archsimd.LoadUint32x4((*[4]uint32)(p)) }
func load2(p unsafe.Pointer) archsimd.Uint64x2     { return archsimd.LoadUint64x2((*[2]uint64)(p)) }
func store2(p unsafe.Pointer, v archsimd.Uint64x2) { v.Store((*[2]uint64)(p)) }
