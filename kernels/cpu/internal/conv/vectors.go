//go:build goexperiment.simd && amd64

package conv

import "simd/archsimd"

// Pointers run past the last element that is used, and lanes that a mask leaves out may lie beyond
// the end: hence nocheckptr.
//
// The compiler keeps 15 vectors in registers: eight sums and two of the image leave room for a row
// of weights to be overwritten by each product, which is why a row is loaded once for each. Four
// steps at a time hide the moves with which a loop begins anew.

func vectors32() (ks []*Kernel[float32]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float32]{Name: "avx512", Lanes: lanes32x16, Tile: tile32x16, Splat: splat32x16, Sums: sums32x16,
			Copy: copy32x16, MaxPool: maxPool32x16, MaxPoolGrad: maxPoolGrad32x16})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float32]{Name: "avx2", Lanes: lanes32x8, Tile: tile32x8, Splat: splat32x8, Sums: sums32x8, Copy: copyRows[float32]})
	}
	return ks
}

func vectors64() (ks []*Kernel[float64]) {
	if archsimd.X86.AVX512() {
		ks = append(ks, &Kernel[float64]{Name: "avx512", Lanes: lanes64x8, Tile: tile64x8, Splat: splat64x8, Sums: sums64x8, Copy: copyRows[float64]})
	}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		ks = append(ks, &Kernel[float64]{Name: "avx2", Lanes: lanes64x4, Tile: tile64x4, Splat: splat64x4, Sums: sums64x4, Copy: copyRows[float64]})
	}
	return ks
}

// narrow32x16 and the like add the lanes of a vector down to 16 bytes.
func narrow32x16(v f32x16) archsimd.Float32x4 { return narrow32x8(v.GetLo().Add(v.GetHi())) }
func narrow32x8(v f32x8) archsimd.Float32x4   { return v.GetLo().Add(v.GetHi()) }
func narrow64x8(v f64x8) archsimd.Float64x2   { return narrow64x4(v.GetLo().Add(v.GetHi())) }
func narrow64x4(v f64x4) archsimd.Float64x2   { return v.GetLo().Add(v.GetHi()) }

// put32 adds the pairs of lanes that are left of each sum, and stores four sums.
func put32(o []float32, a, b archsimd.Float32x4) { a.AddPairs(b).StoreSlice(o) }

// put64 stores four sums.
func put64(o []float64, a, b archsimd.Float64x2) {
	a.StoreSlice(o)
	b.StoreSlice(o[2:])
}
