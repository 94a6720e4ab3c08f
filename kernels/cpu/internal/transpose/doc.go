// Package transpose transposes matrices of elements of 4 or 8 bytes, whatever they are, with the
// processor's vectors: what copies of transposed tensors and the packing of matrices for products
// are made of.
//
// Vectors need a build with GOEXPERIMENT=simd (the Makefile sets it) on amd64 with AVX2; without,
// and for what squares do not cover, it is plain Go, which is the oracle of the rest. Nothing
// allocates. Everything is safe for concurrent use.
package transpose
