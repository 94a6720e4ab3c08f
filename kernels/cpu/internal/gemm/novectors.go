//go:build !(goexperiment.simd && amd64)

package gemm

func tiles32() []*Kernel[float32] { return nil }

func tiles64() []*Kernel[float64] { return nil }
