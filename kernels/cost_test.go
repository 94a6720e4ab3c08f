package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

func TestCostsCountWhatAPersonWould(t *testing.T) {
	f := func(s ...int) Type { return Type{device.Float32, s} }
	sum := Reduce{Fn: Sum, Axes: []int{0}}
	bias := Map{Shape: device.Shape{64, 10}, Steps: []Step{{Binary{Add}, [2]int{0, 1}}, {Unary{Fn: Relu}, [2]int{2, 0}}},
		Outs: []Out{{Reg: 3}, {Reg: 3, Fold: &sum}}}
	columns := &View{Shape: device.Shape{64, 20}, Offset: 5, Strides: []int{100, 1}}
	repeated := &View{Shape: device.Shape{64, 20}, Strides: []int{0, 1}}
	for _, c := range []struct {
		i    Instr
		in   []Type
		want Cost
	}{
		{Unary{Fn: Exp}, []Type{f(2, 3)}, Cost{6, 48}},
		{Binary{Add}, []Type{f(2, 3), f(3)}, Cost{6, 60}},
		{MatMul{}, []Type{f(64, 20), f(20, 10)}, Cost{2 * 64 * 20 * 10, 4 * (1280 + 200 + 640)}},
		{MatMul{TransA: true}, []Type{f(8, 20, 64), f(20, 10)}, Cost{2 * 8 * 64 * 20 * 10, 4 * (8*1280 + 200 + 8*640)}},
		{MatMulThen{MatMul{}, bias}, []Type{f(64, 20), f(20, 10), f(10)}, Cost{2*64*20*10 + 3*640, 4 * (1280 + 200 + 10 + 640 + 10)}},
		{Viewed{MatMul{}, []*View{columns, nil}}, []Type{f(64, 100), f(20, 10)}, Cost{2 * 64 * 20 * 10, 4 * (1280 + 200 + 640)}},
		{Viewed{MatMul{}, []*View{repeated, nil}}, []Type{f(64, 100), f(20, 10)}, Cost{2 * 64 * 20 * 10, 4 * (20 + 200 + 640)}},
		{Attention{}, []Type{f(2, 3, 4, 5), f(2, 6, 4, 5), f(2, 6, 4, 5)}, Cost{8 * 18 * 25, 4 * (2*120 + 2*240 + 24)}},
		{Attention{Causal: true}, []Type{f(2, 3, 4, 5), f(2, 3, 4, 5), f(2, 3, 4, 5)}, Cost{8 * 6 * 25, 4 * (4*120 + 24)}},
		{Reshape{device.Shape{6}}, []Type{f(2, 3)}, Cost{}},
		{Slice{1, 0, 1}, []Type{f(2, 3)}, Cost{0, 16}},
		{Gather{}, []Type{f(1000, 8), {device.Int32, device.Shape{2}}}, Cost{0, 2*64 + 8}},
	} {
		out, err := c.i.Infer(c.in)
		require.NoError(t, err)
		require.Equal(t, c.want, CostOf(c.i, c.in, out), "%v", c.i)
	}
}
