package local

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// BenchmarkLocal has a row for each of bench/torch/local.py. OMP_NUM_THREADS=1 makes it one thread.
func BenchmarkLocal(b *testing.B) {
	steps := func(m model) func(b *testing.B) {
		return func(b *testing.B) {
			step := m.stepper(b)
			for range 5 {
				step()
			}
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		}
	}
	b.Run("lane=weft/sgemm1024", product)
	b.Run("lane=weft/mlp", steps(mlp(true)))
	b.Run("lane=weft/mlp-layers", steps(mlp(false)))
	b.Run("lane=weft/block", steps(transformer()))
	b.Run("lane=weft/convnet", steps(convnet(true)))
	b.Run("lane=weft/convnet-layers", steps(convnet(false)))
	b.Run("lane=weft/add3x3", func(b *testing.B) { adds(b, small(false), small(false)) })
	b.Run("lane=weft/add3x3-taped", func(b *testing.B) { adds(b, small(true), small(false)) })
	b.Run("lane=weft/chain100-backward", chain)
	b.Run("lane=weft/add1024", func(b *testing.B) {
		x := autodiff.NormalFrom(source(), 1, 1024, 1024)
		a := autodiff.NewArena("add")
		defer a.Free()
		for b.Loop() {
			a.Free()
			a = autodiff.NewArena("add")
			in := x.Detach()
			if err := a.Adopt(in); err != nil {
				b.Fatal(err)
			}
			if err := autodiff.Add(in, in).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// product is the library's kernel alone, into a buffer that is used again.
func product(b *testing.B) {
	t := kernels.Type{Dtype: device.Float32, Shape: device.Shape{1024, 1024}}
	be, err := backend.For(device.Host())
	require.NoError(b, err)
	k, err := be.Prepare(kernels.MatMul{}, []kernels.Type{t, t})
	require.NoError(b, err)
	x, err := autodiff.NormalFrom(source(), 1, 1024, 1024).Acquire()
	require.NoError(b, err)
	y, err := device.Host().Alloc(t.Bytes())
	require.NoError(b, err)
	defer func() { require.NoError(b, y.Release()); require.NoError(b, x.Release()) }()
	for b.Loop() {
		if err := k.Run([]*device.Buffer{y}, []*device.Buffer{x, x}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(2*1024*1024*1024*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func adds(b *testing.B, x, y *autodiff.Tensor) {
	b.ReportAllocs()
	for b.Loop() {
		if err := autodiff.Add(x, y).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// chain is the backward of 100 products of 3×3, per product; building them is not counted.
func chain(b *testing.B) {
	x, y, one := small(true), small(false), autodiff.Ones(device.Float32, 3, 3)
	var took time.Duration
	for b.Loop() {
		z := x
		for range 100 {
			z = autodiff.Mul(z, y)
		}
		began := time.Now()
		if _, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{one}}, z); err != nil {
			b.Fatal(err)
		}
		took += time.Since(began)
	}
	b.ReportMetric(float64(took.Nanoseconds())/100/float64(b.N), "ns/op")
}

func TestModelsLearn(t *testing.T) {
	for name, m := range map[string]model{"mlp": mlp(true), "layers": mlp(false), "block": transformer(), "convnet": convnet(true), "convnet layers": convnet(false)} {
		step := m.stepper(t)
		before, err := m.loss().Item()
		require.NoError(t, err, name)
		for range 3 {
			step()
		}
		after, err := m.loss().Item()
		require.NoError(t, err, name)
		require.Less(t, after, before, name)
	}
}
