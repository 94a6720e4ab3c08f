package blas

import (
	"fmt"
	"testing"
)

var gemmSizes = []struct {
	name  string
	p     Product
	times int
}{
	{"1024x1024x1024", Contiguous(false, false, 1024, 1024, 1024), 1},
	{"64x784x1024", Contiguous(false, false, 64, 1024, 784), 1},
	{"64x1024x1024T", Contiguous(false, true, 64, 1024, 1024), 1},
	{"784Tx64x1024", Contiguous(true, false, 784, 1024, 64), 1},
	{"64x1024x10", Contiguous(false, false, 64, 10, 1024), 1},
	{"64x10x1024T", Contiguous(false, true, 64, 1024, 10), 1},
	{"1024Tx64x10", Contiguous(true, false, 1024, 10, 64), 1},
	{"128x64x128T/32", Contiguous(false, true, 128, 128, 64), 32},
	{"128x128x64/32", Contiguous(false, false, 128, 64, 128), 32},
	{"1x1024x1024", Contiguous(false, false, 1, 1024, 1024), 1},
	{"32x32x32", Contiguous(false, false, 32, 32, 32), 1},
	{"16x16x16", Contiguous(false, false, 16, 16, 16), 1},
	{"8x8x8", Contiguous(false, false, 8, 8, 8), 1},
	{"3x3x3", Contiguous(false, false, 3, 3, 3), 1},
}

// BenchmarkGemm multiplies by every implementation there is, one core each. OPENBLAS_CORETYPE and
// OPENBLAS_NUM_THREADS hold OpenBLAS to some kernels and one thread.
func BenchmarkGemm(b *testing.B) {
	for _, s := range gemmSizes {
		for name, g := range All() {
			if s.p.M*s.p.N*s.p.K > 1<<28 && (name == "plain" || name == "gonum") {
				continue // minutes
			}
			b.Run(fmt.Sprintf("size=%s/impl=%s", s.name, name), func(b *testing.B) {
				x, y, z := make([]float32, s.p.M*s.p.K), make([]float32, s.p.K*s.p.N), make([]float32, s.p.M*s.p.N)
				for b.Loop() {
					for range s.times {
						g.sgemm(s.p, x, y, z)
					}
				}
				flops := 2 * float64(s.p.M*s.p.N*s.p.K*s.times)
				b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
