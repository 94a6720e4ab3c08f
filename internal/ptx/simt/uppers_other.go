//go:build !goexperiment.simd || !amd64

package simt

// ClearUppers does nothing where Go has no vectors.
func ClearUppers() {}
