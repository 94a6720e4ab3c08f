package kernels

import (
	"errors"
	"sync"

	"github.com/weft-project/weft/kernels/gemm"
)

// goBLAS is products on the processor's vectors, in Go.
type goBLAS struct {
	s *gemm.Kernel[float32]
	d *gemm.Kernel[float64]
}

// vectorBLAS says whether this build and this processor have one.
var vectorBLAS = sync.OnceValue(func() blasChoice {
	g := goBLAS{gemm.Best[float32](), gemm.Best[float64]()}
	if g.s == nil || g.d == nil {
		return blasChoice{err: errors.New("no vectors in Go: they need a build with GOEXPERIMENT=simd (go 1.26, amd64) and a processor with AVX2 and FMA")}
	}
	return blasChoice{gemmer: g, name: "go", detail: g.s.Name}
})

func (g goBLAS) sgemm(p product, a, b, c []float32) { g.s.Mul(p.gemm(), a, b, c) }
func (g goBLAS) dgemm(p product, a, b, c []float64) { g.d.Mul(p.gemm(), a, b, c) }

// cut gives pieces of a tenth of a millisecond or more: gemm's are bit for bit those of the whole.
func (g goBLAS) cut(p product) (rows, cols int) {
	const least = 1 << 22
	if p.work(2*least) < 2*least || workersHere() == 1 {
		return p.m, p.n
	}
	return p.halved(least, 128)
}

func (p product) gemm() gemm.Product {
	return gemm.Product{TransA: p.transA, TransB: p.transB, M: p.m, N: p.n, K: p.k, LDA: p.lda, LDB: p.ldb, LDC: p.ldc, Add: p.add}
}
