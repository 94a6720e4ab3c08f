//go:build !goexperiment.simd || !amd64

package vec

func vectors32() []*Loops[float32] { return nil }

func vectors64() []*Loops[float64] { return nil }
