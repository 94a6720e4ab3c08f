package autodiff_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// chain is x·y·y…: n small products, one after another.
func chain(n int, x, y *autodiff.Tensor) *autodiff.Tensor {
	for range n {
		x = autodiff.Mul(x, y)
	}
	return x
}

// BenchmarkEager is what a small call costs, computed or taped, for nobody and in an arena; and the
// backward of a chain, per op.
func BenchmarkEager(b *testing.B) {
	x, y := autodiff.Rand(3, 3), autodiff.Rand(3, 3)
	w, bias := autodiff.Rand(3, 3).RequireGrad(), autodiff.Rand(3).RequireGrad()
	for _, bm := range []struct {
		name string
		call func(x *autodiff.Tensor) *autodiff.Tensor
	}{
		{"add3x3", func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Add(x, y) }},
		{"add3x3 taped", func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Add(x, w) }},
		{"mul3x3 taped", func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(x, w) }},
		{"scale3x3 taped", func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Scale(w, 0.5) }},
		{"sum3x3 taped", func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Sum(w, 0) }},
		{"matmul3x3 taped", func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.MatMul(x, w) }},
		{"linear3x3 taped", func(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Linear(x, w, bias) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if bm.call(x).Err() != nil {
					b.Fatal(bm.call(x).Err())
				}
			}
		})
		b.Run(bm.name+" in an arena", func(b *testing.B) {
			b.ReportAllocs()
			for done := false; !done; {
				a := autodiff.NewArena("bench")
				mine := x.Detach()
				require.NoError(b, a.Adopt(mine))
				for i := 0; i < 1000; i++ {
					if done = !b.Loop(); done {
						break
					}
					if bm.call(mine).Err() != nil {
						b.Fatal(bm.call(mine).Err())
					}
				}
				a.Free()
			}
		})
	}
	one := autodiff.Ones(device.Float32, 3, 3)
	const ops = 100
	b.Run("chain of 100 backward", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			z := chain(ops, w, y)
			b.StartTimer()
			_, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{one}}, z)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ops), "ns/node")
	})
	b.Run("chain of 100 both ways in an arena", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := autodiff.NewArena("bench")
			mine := y.Detach()
			require.NoError(b, a.Adopt(mine))
			_, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{one}}, chain(ops, w, mine))
			require.NoError(b, err)
			a.Free()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ops), "ns/node")
	})
}
