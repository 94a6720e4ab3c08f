//go:build goexperiment.simd && amd64

package gemm

import "simd/archsimd"

// A tile is 2×4 vectors: the compiler keeps 15 registers from one step of a loop to the next, and
// larger tiles spill. Of its 10 instructions a step that need the multiplying ports, 8 multiply.

func tiles32() (ks []*Kernel[float32]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float32]{Name: "avx512", tile: tile[float32]{2, 4 * lanes32x16, 3, tile32x16}})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float32]{Name: "avx2", tile: tile[float32]{2, 4 * lanes32x8, 3, tile32x8}})
	}
	return ks
}

func tiles64() (ks []*Kernel[float64]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float64]{Name: "avx512", tile: tile[float64]{2, 4 * lanes64x8, 1, tile64x8}})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float64]{Name: "avx2", tile: tile[float64]{2, 4 * lanes64x4, 1, tile64x4}})
	}
	return ks
}
