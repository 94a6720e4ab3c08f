package blas

import (
	"errors"
	"sync"

	"github.com/weft-project/weft/kernels/cpu/internal/gemm"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// vectorGemmer is products on the processor's vectors, in Go.
type vectorGemmer struct {
	s *gemm.Kernel[float32]
	d *gemm.Kernel[float64]
}

// openVectors says whether this build and this processor have one.
var openVectors = sync.OnceValue(func() choice {
	g := vectorGemmer{gemm.Best[float32](), gemm.Best[float64]()}
	if g.s == nil || g.d == nil {
		return choice{err: errors.New("no vectors in Go: they need a build with GOEXPERIMENT=simd (go 1.26, amd64) and a processor with AVX2 and FMA")}
	}
	return choice{gemmer: g, name: "go", detail: g.s.Name}
})

func (g vectorGemmer) sgemm(p Product, a, b, c []float32) { g.s.Mul(gemm.Product(p), a, b, c) }
func (g vectorGemmer) dgemm(p Product, a, b, c []float64) { g.d.Mul(gemm.Product(p), a, b, c) }

// cut gives pieces of a tenth of a millisecond or more: gemm's are bit for bit those of the whole.
func (g vectorGemmer) cut(p Product) (rows, cols int) {
	const least = 1 << 22
	if p.Work(2*least) < 2*least || parallel.Workers() == 1 {
		return p.M, p.N
	}
	return p.halved(least, 128)
}
