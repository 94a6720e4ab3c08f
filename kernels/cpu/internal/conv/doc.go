// Package conv is the tile that convolutions are made of: a sum of products of four rows of weights
// with two vectors of an image, each step of the sum at another place of the image. Sliding a
// kernel over an image is such a sum, with a step for each element of the kernel, where the image
// is padded and its rows lie one after the other: no columns need to be laid out (Dukhan, "The
// indirect convolution algorithm", arXiv:1907.02129). So are the gradients.
//
// Vectors need a build with GOEXPERIMENT=simd (the Makefile sets it) on amd64 with AVX-512, or AVX2
// and FMA; without, there is only [Plain], which is the oracle of the others. Nothing allocates,
// and everything is safe for concurrent use. Slices that are too short are undefined behaviour:
// callers own their extents.
package conv
