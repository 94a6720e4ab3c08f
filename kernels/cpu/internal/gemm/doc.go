// Package gemm multiplies matrices in plain Go, on the processor's vectors.
//
// A [Kernel] is one implementation for one type of elements; [Best] is the fastest that this
// processor can run. Vectors need a build with GOEXPERIMENT=simd (the Makefile sets it) on amd64
// with AVX-512, or AVX2 and FMA; without, there is none.
//
// [Kernel.Mul] reads the operands where they lie, packs what it reads again and again or in an
// awkward order into memory of a pool, and allocates nothing once that is warm. Every element of a
// result is one chain of fused multiply-adds in the order of k, cut every [Depth] steps, whatever
// the extents, strides and transposes: a product cut into pieces by rows or columns gives the same
// bits.
//
// Everything is safe for concurrent use; a result must not overlap an operand. Slices that are too
// short for the extents panic.
package gemm
