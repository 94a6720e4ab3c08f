package kernels

// Padder is a [Backend] that says what lengths of rows suit it.
type Padder interface {
	// PadsRows says whether products are much faster where rows begin at multiples of 16 bytes, so
	// that it pays to make others longer.
	PadsRows() bool
	// PadsTo is of how many elements the rows should be multiples, then, of a product of m rows, n
	// columns and sums of k terms. It is the same for the product's gradients.
	PadsTo(m, n, k int) int
}
