// Package images computes convolutions of images and their gradients, pooling, and the columns that
// windows see.
//
// A convolution chooses between products with blocks of columns (package blas) and sums tap by tap
// on vectors (package conv), by the extents alone. Where zeros of the padding met what is not
// finite, elements are computed again by the definition. What it gives is immutable and safe for
// concurrent runs.
package images
