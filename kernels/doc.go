// Package kernels is the instruction set: what a device can compute. It computes nothing itself.
//
// An [Instr] is a description: which operation, with which parameters. [Instr.Infer] checks the
// types of its operands and gives those of its results, without a device. A [Backend] prepares an
// instruction for given operand types once; the [Kernel] it gives is then run any number of times.
// Package backend finds the one for a device; packages cpu and gpu are the two there are, and do
// not know each other.
//
// Who owns what: the caller owns every buffer, allocates the results (by the types that Infer gave)
// and keeps its references for as long as Run takes. Kernels keep no buffer. Tensors are contiguous
// and row-major; [Viewed] reads other layouts, and [Narrow] reads and writes bfloat16 where a
// backend has that.
//
// A whole program is one [Routine] of many calls over a few buffers, checked when it is made
// ([Backend.Assemble]) and run by one launch.
//
// Backends, kernels and instructions are immutable and safe for concurrent use; two runs at once
// must not share a buffer that one of them writes. A result may lie over an operand only where
// [Overwrites] says so; every other sharing is refused.
//
// Results are deterministic: the same bytes in give the same bytes out, on one machine with one
// choice of BLAS. Sums of float32 are carried out in float64, except inside matrix products, which
// are the BLAS library's, and convolutions.
//
// On an error the results hold undefined values and the operands are intact, except those that were
// also results. Wrong operands are [ErrOperands], ids and labels out of range [ErrIndex]; buffers
// that were released or lie elsewhere give the errors of package device. Nothing panics.
package kernels
