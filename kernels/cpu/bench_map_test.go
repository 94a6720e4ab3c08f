package cpu_test

import (
	"testing"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// BenchmarkMap goes through fused expressions over 1024×1024 elements, but where the name says
// otherwise.
func BenchmarkMap(b *testing.B) {
	two := func(fn kernels.BinaryFn, x, y int) kernels.Step {
		return kernels.Step{Op: kernels.Binary{Fn: fn}, Args: [2]int{x, y}}
	}
	one := func(fn kernels.UnaryFn, x int) kernels.Step {
		return kernels.Step{Op: kernels.Unary{Fn: fn}, Args: [2]int{x}}
	}
	s := device.Shape{1024, 1024}
	x, row := f32(s...), f32(1024)
	columns := &kernels.Reduce{Axes: []int{0}}
	for _, c := range []struct {
		name string
		i    kernels.Map
		in   []kernels.Type
	}{
		{"add", kernels.Map{Steps: []kernels.Step{two(kernels.Add, 0, 1)}, Outs: []kernels.Out{{Reg: 2}}}, []kernels.Type{x, x}},
		{"bias+gelu", kernels.Map{Steps: []kernels.Step{two(kernels.Add, 0, 1), one(kernels.Gelu, 2)}, Outs: []kernels.Out{{Reg: 3}}}, []kernels.Type{x, row}},
		{"bias+relu", kernels.Map{Steps: []kernels.Step{two(kernels.Add, 0, 1), one(kernels.Relu, 2)}, Outs: []kernels.Out{{Reg: 3}}}, []kernels.Type{x, row}},
		{"relu grad and its column sums", kernels.Map{Steps: []kernels.Step{two(kernels.ReluGrad, 0, 1)}, Outs: []kernels.Out{{Reg: 2}, {Reg: 2, Fold: columns}}}, []kernels.Type{x, x}},
		{"mean square error", kernels.Map{Steps: []kernels.Step{two(kernels.Sub, 0, 1), two(kernels.Mul, 2, 2)}, Outs: []kernels.Out{{Reg: 3, Fold: &kernels.Reduce{Fn: kernels.Mean}}}}, []kernels.Type{x, x}},
	} {
		c.i.Shape = s
		b.Run(c.name, func(b *testing.B) { bench(b, 0, c.i, c.in...) })
	}
	transposed := []*kernels.View{nil, {Shape: s, Strides: []int{1, 1024}}}
	b.Run("transposed add", func(b *testing.B) {
		add := kernels.Map{Shape: s, Steps: []kernels.Step{two(kernels.Add, 0, 1)}, Outs: []kernels.Out{{Reg: 2}}}
		bench(b, 0, kernels.Viewed{Of: add, In: transposed}, x, x)
	})
}

func BenchmarkReduce(b *testing.B) {
	for _, c := range []struct {
		name string
		axes []int
		in   kernels.Type
	}{
		{"all/1024x1024", nil, f32(1024, 1024)}, {"rows/1024x1024", []int{1}, f32(1024, 1024)}, {"columns/512x1024", []int{0}, f32(512, 1024)},
		{"columns/8192x10", []int{0}, f32(8192, 10)}, {"rows/8192x10", []int{1}, f32(8192, 10)}, {"middle/64x64x64", []int{1}, f32(64, 64, 64)},
		{"channels/64x16x196", []int{0, 2}, f32(64, 16, 196)}, {"all/3x3", nil, f32(3, 3)},
	} {
		b.Run(c.name, func(b *testing.B) { bench(b, 0, kernels.Reduce{Axes: c.axes}, c.in) })
	}
}
