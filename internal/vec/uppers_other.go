//go:build !goexperiment.simd || !amd64

package vec

// ClearUppers does nothing where Go has no vectors.
func ClearUppers() {}
