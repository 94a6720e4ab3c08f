package cpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu"
)

// prepare gives a kernel and buffers for it on the host, filled with small numbers.
func prepare(b testing.TB, i kernels.Instr, in ...kernels.Type) (kernels.Kernel, []*device.Buffer, []*device.Buffer) {
	d := device.Host()
	k, err := cpu.Backend{}.Prepare(i, in)
	require.NoError(b, err)
	out, err := i.Infer(in)
	require.NoError(b, err)
	alloc := func(ts []kernels.Type) (bufs []*device.Buffer) {
		for _, t := range ts {
			buf, err := d.Alloc(t.Bytes())
			require.NoError(b, err)
			raw, err := buf.Host()
			require.NoError(b, err)
			clear(raw)
			for k := range raw[:len(raw)/4] {
				if t.Dtype.IsFloat() {
					device.As[float32](raw)[k] = float32(k%13)/8 - 0.75
				}
			}
			b.Cleanup(func() { require.NoError(b, buf.Release()) })
			bufs = append(bufs, buf)
		}
		return bufs
	}
	return k, alloc(out), alloc(in)
}

func f32(s ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: s} }

func bench(b *testing.B, flops float64, i kernels.Instr, in ...kernels.Type) {
	k, outs, ins := prepare(b, i, in...)
	for b.Loop() {
		if err := k.Run(outs, ins); err != nil {
			b.Fatal(err)
		}
	}
	if flops > 0 {
		b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	}
}

// BenchmarkMatMul multiplies with whichever library [kernels.BLAS] names; WEFT_BLAS=gonum compares.
func BenchmarkMatMul(b *testing.B) {
	for _, s := range [][3]int{{3, 3, 3}, {32, 32, 32}, {64, 784, 1024}, {1024, 1024, 1024}} {
		m, k, n := s[0], s[1], s[2]
		b.Run(fmt.Sprintf("m=%d/k=%d/n=%d", m, k, n), func(b *testing.B) {
			bench(b, 2*float64(m*k*n), kernels.MatMul{}, f32(m, k), f32(k, n))
		})
	}
}

// BenchmarkMatMulThen is a layer with bias and activation, forward and backward, and the scores of
// attention, by views.
func BenchmarkMatMulThen(b *testing.B) {
	step := func(i kernels.Instr, args ...int) kernels.Step {
		return kernels.Step{Op: i, Args: [2]int{args[0], args[len(args)-1]}}
	}
	add, relu := kernels.Binary{Fn: kernels.Add}, kernels.Unary{Fn: kernels.Relu}
	for _, m := range []int{64, 1024} {
		k, n := 1024, 1024
		c := device.Shape{m, n}
		forward := kernels.Map{Shape: c, Steps: []kernels.Step{step(add, 0, 1), step(relu, 2)}, Outs: []kernels.Out{{Reg: 3}}}
		backward := kernels.Map{Shape: c, Steps: []kernels.Step{step(kernels.Binary{Fn: kernels.ReluGrad}, 1, 0)},
			Outs: []kernels.Out{{Reg: 2}, {Reg: 2, Fold: &kernels.Reduce{Axes: []int{0}}}}}
		flops := 2 * float64(m*k*n)
		b.Run(fmt.Sprintf("forward/m=%d", m), func(b *testing.B) {
			bench(b, flops, kernels.MatMulThen{Then: forward}, f32(m, k), f32(k, n), f32(n))
		})
		b.Run(fmt.Sprintf("backward/m=%d", m), func(b *testing.B) {
			bench(b, flops, kernels.MatMulThen{MatMul: kernels.MatMul{TransB: true}, Then: backward}, f32(m, k), f32(n, k), f32(m, n))
		})
	}
	s := device.Shape{8, 4, 128, 128}
	heads := func(part int) *kernels.View {
		return &kernels.View{Shape: device.Shape{8, 4, 128, 64}, Offset: part * 256, Strides: []int{128 * 768, 64, 768, 1}}
	}
	scores := kernels.Map{Shape: s, Steps: []kernels.Step{step(kernels.Unary{Fn: kernels.Scale, C: 0.125}, 0), step(add, 2, 1)}, Outs: []kernels.Out{{Reg: 3}}}
	of := kernels.MatMulThen{MatMul: kernels.MatMul{TransB: true}, Then: scores}
	b.Run("scores", func(b *testing.B) {
		x := f32(8, 128, 768)
		bench(b, 2*32*128*128*64, kernels.Viewed{Of: of, In: []*kernels.View{heads(0), heads(1), nil}}, x, x, f32(128, 128))
	})
}

func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		name string
		a, b kernels.Type
	}{
		{"same/3x3", f32(3, 3), f32(3, 3)}, {"same/1024x1024", f32(1024, 1024), f32(1024, 1024)},
		{"row/1024x1024", f32(1024, 1024), f32(1024)}, {"column/1024x1024", f32(1024, 1024), f32(1024, 1)},
		{"scalar/1024x1024", f32(1024, 1024), f32()},
	} {
		b.Run(c.name, func(b *testing.B) { bench(b, 0, kernels.Binary{Fn: kernels.Add}, c.a, c.b) })
	}
}

// BenchmarkFamilies goes through a pass over 64×1024 elements of each other kind.
func BenchmarkFamilies(b *testing.B) {
	x, ids := f32(64, 1024), kernels.Type{Dtype: device.Int32, Shape: device.Shape{64}}
	for _, c := range []struct {
		i  kernels.Instr
		in []kernels.Type
	}{
		{kernels.Unary{Fn: kernels.Relu}, []kernels.Type{x}}, {kernels.Unary{Fn: kernels.Gelu}, []kernels.Type{x}},
		{kernels.Binary{Fn: kernels.GeluGrad}, []kernels.Type{x, x}}, {kernels.Unary{Fn: kernels.Exp}, []kernels.Type{x}},
		{kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}, []kernels.Type{x}}, {kernels.Reduce{Fn: kernels.Sum, Axes: []int{1}}, []kernels.Type{x}},
		{kernels.Softmax{Axis: 1}, []kernels.Type{x}}, {kernels.SoftmaxGrad{Axis: 1}, []kernels.Type{x, x}},
		{kernels.Softmax{Axis: 1, Log: true}, []kernels.Type{x}}, {kernels.SoftmaxGrad{Axis: 1, Log: true}, []kernels.Type{x, x}},
		{kernels.CrossEntropy{}, []kernels.Type{x, ids}}, {kernels.CrossEntropyGrad{}, []kernels.Type{x, ids, f32()}},
		{kernels.Normalize{Eps: 1e-5}, []kernels.Type{x}}, {kernels.NormalizeGrad{Eps: 1e-5}, []kernels.Type{x, x}},
		{kernels.LayerNorm{Eps: 1e-5}, []kernels.Type{x, f32(1024), f32(1024)}},
		{kernels.LayerNormGrad{Eps: 1e-5}, []kernels.Type{x, f32(1024), x}},
		{kernels.Transpose{Perm: []int{1, 0}}, []kernels.Type{x}},
		{kernels.SumSquares{}, []kernels.Type{x, {Dtype: device.Float64}}},
	} {
		b.Run(c.i.String(), func(b *testing.B) { bench(b, 0, c.i, c.in...) })
	}
}

// BenchmarkUpdate steps 64×1024 elements by each rule.
func BenchmarkUpdate(b *testing.B) {
	for _, i := range kerneltest.Updates() {
		in := []kernels.Type{f32(64, 1024), f32(64, 1024)}
		for range i.Slots() {
			in = append(in, in[0])
		}
		b.Run(i.String(), func(b *testing.B) { bench(b, 0, i, in...) })
	}
}
