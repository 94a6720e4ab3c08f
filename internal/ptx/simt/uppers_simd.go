//go:build goexperiment.simd && amd64

package simt

import "simd/archsimd"

// ClearUppers is called before a loop with math.FMA. Where Go has vectors, its scheduler restores
// all of their registers to a goroutine that it stopped, and marks the upper halves as in use; then
// each FMA between other scalar instructions was measured to take 110 ns (Sapphire Rapids), for as
// long as nothing clears them.
func ClearUppers() {
	if archsimd.X86.AVX() {
		archsimd.ClearAVXUpperBits()
	}
}
