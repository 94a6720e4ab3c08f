//go:build !race

package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Under the race detector sync.Pool drops things at random, so that nothing can be said there.

func TestARoutineRunsWithoutAllocation(t *testing.T) {
	r, bufs := chain(t, 100)
	require.NoError(t, r.Run(bufs))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Run(bufs) }))
}

func TestKernelsRunWithoutAllocation(t *testing.T) {
	s := device.Shape{40, 300}
	x := cpuf32(s...)
	a, w := cpuf32(8, 300), cpuf32(300, 10)                                              // too little for a library
	of := &kernels.View{Shape: device.Shape{300, 10}, Offset: 0, Strides: []int{2, 600}} // neither axis is contiguous
	then := kernels.Map{Shape: device.Shape{8, 10}, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, {Op: kernels.Binary{Fn: kernels.Mul}, Args: [2]int{0, 2}}}, Outs: []kernels.Out{{Reg: 3}, {Reg: 2}, {Reg: 3, Fold: &kernels.Reduce{Axes: []int{0}}}}}
	for _, c := range []struct {
		i  kernels.Instr
		in []kernels.Type
	}{
		{cpuGeluOfBias(s), []kernels.Type{x, cpuf32(300)}}, {kernels.Viewed{Of: cpuGeluOfBias(s), In: []*kernels.View{{Shape: s, Offset: 0, Strides: []int{1, 40}}, nil}}, []kernels.Type{cpuf32(300, 40), cpuf32(40, 1)}},
		{kernels.Unary{Fn: kernels.Exp}, []kernels.Type{x}}, {kernels.Binary{Fn: kernels.Add}, []kernels.Type{x, x}}, {kernels.Binary{Fn: kernels.Add}, []kernels.Type{x, cpuf32()}}, {kernels.Binary{Fn: kernels.Add}, []kernels.Type{cpuf32(40, 1), x}},
		{kernels.Reduce{}, []kernels.Type{x}}, {kernels.Reduce{Fn: kernels.Max, Axes: []int{0}}, []kernels.Type{x}}, {kernels.Reduce{Fn: kernels.Mean, Axes: []int{1}}, []kernels.Type{x}},
		{kernels.MatMul{}, []kernels.Type{a, w}}, {kernels.MatMul{TransA: true}, []kernels.Type{cpuf32(2, 3, 3), cpuf32(2, 3, 3)}}, {kernels.Viewed{Of: kernels.MatMul{}, In: []*kernels.View{nil, of}}, []kernels.Type{a, cpuf32(10, 600)}},
		{kernels.MatMulThen{MatMul: kernels.MatMul{}, Then: then}, []kernels.Type{a, w, cpuf32(10)}}, {kernels.Transpose{Perm: []int{1, 0}}, []kernels.Type{x}}, {kernels.Pad{Axis: 1, Before: 1, After: 1}, []kernels.Type{x}}, {kernels.Concat{Axis: 0}, []kernels.Type{x, x}},
		{kernels.Reduce{Axes: []int{1}}, []kernels.Type{cpuf32(8, 20, 30)}}, {kernels.MaxGrad{Axes: []int{1}}, []kernels.Type{x, cpuf32(40), cpuf32(40)}},
		{kernels.Softmax{Axis: 1}, []kernels.Type{x}}, {kernels.SoftmaxGrad{Axis: 1, Log: true}, []kernels.Type{x, x}}, {kernels.Softmax{Axis: 0, Log: true}, []kernels.Type{x}},
		{kernels.CrossEntropy{}, []kernels.Type{x, cpui32(40)}}, {kernels.CrossEntropyGrad{}, []kernels.Type{x, cpui32(40), cpuf32()}}, {kernels.Gather{}, []kernels.Type{x, cpui32(7)}}, {kernels.ScatterAdd{Rows: 50}, []kernels.Type{cpui32(40), x}},
		{kernels.LayerNorm{}, []kernels.Type{x, cpuf32(300), cpuf32(300)}}, {kernels.LayerNormGrad{}, []kernels.Type{x, cpuf32(300), x}}, {kernels.NormalizeGrad{}, []kernels.Type{x, x}},
		{kernels.Attention{Causal: true}, []kernels.Type{cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4)}}, {kernels.Viewed{Of: kernels.Attention{}, In: []*kernels.View{{Shape: device.Shape{2, 9, 3, 4}, Offset: 0, Strides: []int{108, 4, 36, 1}}, nil, nil}}, []kernels.Type{cpuf32(216), cpuf32(2, 5, 3, 4), cpuf32(2, 5, 3, 4)}},
		{kernels.AttentionGrad{Causal: true, Joined: true}, []kernels.Type{cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 3, 9), cpuf32(2, 9, 3, 4)}},
		{kernels.Update{Rule: kernels.AdamW, Step: 1}, []kernels.Type{cpuf32(40, 1000), cpuf32(40, 1000), cpuf32(40, 1000), cpuf32(40, 1000)}},
		{kernels.UpdateMany{Of: kernels.Update{Rule: kernels.SGD, Step: 1}}, []kernels.Type{x, x, cpuf32(40, 1000), cpuf32(40, 1000)}}, {kernels.Softmax{Axis: 1}, []kernels.Type{cpuf32(100, 1000)}},
		{kernels.OnRows{Of: kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}}, []kernels.Type{x, cpuf32(5, 300), cpui32(5)}},
		{kernels.Conv2d{Window: kernels.Square(3, 1, 1)}, []kernels.Type{cpuf32(2, 3, 8, 8), cpuf32(5, 3, 3, 3)}}, {kernels.Conv2dGradX{Window: kernels.Square(3, 2, 1), Height: 8, Width: 8}, []kernels.Type{cpuf32(5, 3, 3, 3), cpuf32(2, 5, 4, 4)}},
		{kernels.Conv2dGradW{Window: kernels.Square(3, 2, 1)}, []kernels.Type{cpuf32(2, 3, 8, 8), cpuf32(2, 5, 4, 4)}}, {kernels.Conv2d{Window: kernels.Square(9, 1, 4)}, []kernels.Type{cpuf32(1, 5, 4, 4), cpuf32(1, 5, 9, 9)}},
		{kernels.Conv2dGradX{Window: kernels.Square(9, 1, 4), Height: 4, Width: 4}, []kernels.Type{cpuf32(5, 1, 9, 9), cpuf32(1, 5, 4, 4)}}, {kernels.Conv2dGradW{Window: kernels.Square(9, 1, 4)}, []kernels.Type{cpuf32(1, 5, 4, 4), cpuf32(1, 1, 4, 4)}},
		{kernels.MaxPool2d{Window: kernels.Square(2, 2, 0)}, []kernels.Type{cpuf32(2, 3, 8, 8)}}, {kernels.MaxPool2dGrad{Window: kernels.Square(3, 2, 1)}, []kernels.Type{cpuf32(2, 3, 8, 8), cpuf32(2, 3, 4, 4)}},
		{kernels.AvgPool2d{Window: kernels.Square(2, 2, 0), Inside: false}, []kernels.Type{cpuf32(2, 3, 8, 8)}}, {kernels.AvgPool2dGrad{AvgPool2d: kernels.AvgPool2d{Window: kernels.Square(2, 2, 0), Inside: false}, Height: 8, Width: 8}, []kernels.Type{cpuf32(2, 3, 4, 4)}},
		{kernels.Im2col{Window: kernels.Square(3, 1, 1), Rows: true}, []kernels.Type{cpuf32(2, 3, 8, 8)}}, {kernels.Col2im{Im2col: kernels.Im2col{Window: kernels.Square(3, 1, 1), Rows: false}, Channels: 3, Height: 8, Width: 8}, []kernels.Type{cpuf32(2, 27, 64)}},
		{kernels.Dropout{P: 0.5}, []kernels.Type{x, cpui64(2)}}, {kernels.Random{Type: x}, []kernels.Type{cpui64(2)}}, {kernels.Random{Fn: kernels.Bernoulli, Type: x, P: 0.5}, []kernels.Type{cpui64(2)}},
	} {
		k, err := Backend{}.Prepare(c.i, c.in)
		require.NoError(t, err)
		out, err := c.i.Infer(c.in)
		require.NoError(t, err)
		outs, ins := buffers(t, out), buffers(t, c.in)
		require.NoError(t, k.Run(outs, ins))
		require.Zero(t, testing.AllocsPerRun(50, func() { _ = k.Run(outs, ins) }), "%v", c.i)
	}
}

func buffers(t *testing.T, ts []kernels.Type) (bs []*device.Buffer) {
	for _, x := range ts {
		b, err := device.Host().Alloc(x.Bytes())
		require.NoError(t, err)
		require.NoError(t, device.Host().Upload(b, 0, make([]byte, b.Len()))) // ids and labels among them: memory from the pool is not zero
		t.Cleanup(func() { _ = b.Release() })
		bs = append(bs, b)
	}
	return bs
}
