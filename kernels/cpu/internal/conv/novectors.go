//go:build !goexperiment.simd || !amd64

package conv

func vectors32() []*Kernel[float32] { return nil }
func vectors64() []*Kernel[float64] { return nil }
