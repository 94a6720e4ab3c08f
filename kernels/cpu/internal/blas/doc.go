// Package blas multiplies matrices by whichever library there is: OpenBLAS, opened when the program
// runs; package gemm, where this build and this processor have vectors; or gonum. [Chosen] opens it
// once per process, as WEFT_BLAS asks. A [Gemmer] stands for each of them.
//
// [Multiply] computes a [Product] of any extents. It cuts large ones for several threads, and
// computes the smallest by a loop. Cuts depend on extents alone, so the same operands give the same
// bits, on one machine with one choice. A result must not overlap an operand. Slices that are too
// short for the extents panic, or, with OpenBLAS, are undefined behaviour: callers own their
// extents. Everything is safe for concurrent use.
package blas
