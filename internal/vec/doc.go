// Package vec is the loops that kernels are made of: functions of one or two rows of elements, sums
// and maxima, written for the processor's vectors. It knows nothing of tensors: a row is a Go
// slice.
//
// [Best] is the fastest set of loops that this processor can run, and [Plain] the same in plain Go,
// which is the oracle of the others. Vectors need a build with GOEXPERIMENT=simd (the Makefile sets
// it) on amd64 with AVX2 or AVX-512; without, Best is Plain.
//
// In float32, vectors give exp and log within 1 unit of the last place, tanh within 1.5, sigmoid
// within 2.5, gelu within 5 where it is nearly 0 and 2 elsewhere, its gradient within 1.5e-7;
// arithmetic and square roots are exact. Plain Go computes such functions in float64. For float64
// there are vectors of arithmetic and sums alone, and on AVX-512 alone.
//
// All rows of a call have the length of the first, or more; a result may be the same row as an
// operand, and must not overlap one otherwise. NaN and infinities go through as in package math.
// Results do not depend on where a row lies in memory, nor on how a caller cuts a row into pieces,
// except those of sums. Nothing allocates. Everything is safe for concurrent use.
//
// Who writes a loop with vectors calls archsimd.ClearAVXUpperBits before anything scalar touches a
// floating-point register, also a variable on the stack that the compiler clears or adds up: an SSE
// instruction while upper halves are in use was measured to cost 170 ns (Sapphire Rapids). So a
// total is stored from the vector first, the halves are cleared, and then its parts are added.
// Loops of scalar functions go by [Stretches]: a goroutine that was stopped goes on with halves in
// use.
package vec
