//go:build !race

package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
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
	a, w := cpuf32(8, 300), cpuf32(300, 10)              // too little for a library
	of := &View{device.Shape{300, 10}, 0, []int{2, 600}} // neither axis is contiguous
	then := Map{device.Shape{8, 10}, []Step{{Binary{Fn: Add}, [2]int{0, 1}}, {Binary{Fn: Mul}, [2]int{0, 2}}}, []Out{{Reg: 3}, {Reg: 2}, {Reg: 3, Fold: &Reduce{Axes: []int{0}}}}}
	for _, c := range []struct {
		i  Instr
		in []Type
	}{
		{cpuGeluOfBias(s), []Type{x, cpuf32(300)}}, {Viewed{cpuGeluOfBias(s), []*View{{s, 0, []int{1, 40}}, nil}}, []Type{cpuf32(300, 40), cpuf32(40, 1)}},
		{Unary{Fn: Exp}, []Type{x}}, {Binary{Fn: Add}, []Type{x, x}}, {Binary{Fn: Add}, []Type{x, cpuf32()}}, {Binary{Fn: Add}, []Type{cpuf32(40, 1), x}},
		{Reduce{}, []Type{x}}, {Reduce{Fn: Max, Axes: []int{0}}, []Type{x}}, {Reduce{Fn: Mean, Axes: []int{1}}, []Type{x}},
		{MatMul{}, []Type{a, w}}, {MatMul{TransA: true}, []Type{cpuf32(2, 3, 3), cpuf32(2, 3, 3)}}, {Viewed{MatMul{}, []*View{nil, of}}, []Type{a, cpuf32(10, 600)}},
		{MatMulThen{MatMul{}, then}, []Type{a, w, cpuf32(10)}}, {Transpose{[]int{1, 0}}, []Type{x}}, {Pad{1, 1, 1}, []Type{x}}, {Concat{0}, []Type{x, x}},
		{Reduce{Axes: []int{1}}, []Type{cpuf32(8, 20, 30)}}, {MaxGrad{Axes: []int{1}}, []Type{x, cpuf32(40), cpuf32(40)}},
		{Softmax{Axis: 1}, []Type{x}}, {SoftmaxGrad{Axis: 1, Log: true}, []Type{x, x}}, {Softmax{Axis: 0, Log: true}, []Type{x}},
		{CrossEntropy{}, []Type{x, cpui32(40)}}, {CrossEntropyGrad{}, []Type{x, cpui32(40), cpuf32()}}, {Gather{}, []Type{x, cpui32(7)}}, {ScatterAdd{50}, []Type{cpui32(40), x}},
		{LayerNorm{}, []Type{x, cpuf32(300), cpuf32(300)}}, {LayerNormGrad{}, []Type{x, cpuf32(300), x}}, {NormalizeGrad{}, []Type{x, x}},
		{Attention{true}, []Type{cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4)}}, {Viewed{Attention{}, []*View{{device.Shape{2, 9, 3, 4}, 0, []int{108, 4, 36, 1}}, nil, nil}}, []Type{cpuf32(216), cpuf32(2, 5, 3, 4), cpuf32(2, 5, 3, 4)}},
		{AttentionGrad{true, true}, []Type{cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 9, 3, 4), cpuf32(2, 3, 9), cpuf32(2, 9, 3, 4)}},
		{Update{Rule: AdamW, Step: 1}, []Type{cpuf32(40, 1000), cpuf32(40, 1000), cpuf32(40, 1000), cpuf32(40, 1000)}},
		{UpdateMany{Update{Rule: SGD, Step: 1}}, []Type{x, x, cpuf32(40, 1000), cpuf32(40, 1000)}}, {Softmax{Axis: 1}, []Type{cpuf32(100, 1000)}},
		{OnRows{Update{Rule: SGD, LR: 1, Step: 1}}, []Type{x, cpuf32(5, 300), cpui32(5)}},
		{Conv2d{Square(3, 1, 1)}, []Type{cpuf32(2, 3, 8, 8), cpuf32(5, 3, 3, 3)}}, {Conv2dGradX{Square(3, 2, 1), 8, 8}, []Type{cpuf32(5, 3, 3, 3), cpuf32(2, 5, 4, 4)}},
		{Conv2dGradW{Square(3, 2, 1)}, []Type{cpuf32(2, 3, 8, 8), cpuf32(2, 5, 4, 4)}}, {Conv2d{Square(9, 1, 4)}, []Type{cpuf32(1, 5, 4, 4), cpuf32(1, 5, 9, 9)}},
		{Conv2dGradX{Square(9, 1, 4), 4, 4}, []Type{cpuf32(5, 1, 9, 9), cpuf32(1, 5, 4, 4)}}, {Conv2dGradW{Square(9, 1, 4)}, []Type{cpuf32(1, 5, 4, 4), cpuf32(1, 1, 4, 4)}},
		{MaxPool2d{Square(2, 2, 0)}, []Type{cpuf32(2, 3, 8, 8)}}, {MaxPool2dGrad{Square(3, 2, 1)}, []Type{cpuf32(2, 3, 8, 8), cpuf32(2, 3, 4, 4)}},
		{AvgPool2d{Square(2, 2, 0), false}, []Type{cpuf32(2, 3, 8, 8)}}, {AvgPool2dGrad{AvgPool2d{Square(2, 2, 0), false}, 8, 8}, []Type{cpuf32(2, 3, 4, 4)}},
		{Im2col{Square(3, 1, 1), true}, []Type{cpuf32(2, 3, 8, 8)}}, {Col2im{Im2col{Square(3, 1, 1), false}, 3, 8, 8}, []Type{cpuf32(2, 27, 64)}},
		{Dropout{0.5}, []Type{x, cpui64(2)}}, {Random{Type: x}, []Type{cpui64(2)}}, {Random{Fn: Bernoulli, Type: x, P: 0.5}, []Type{cpui64(2)}},
	} {
		k, err := cpuBackend{}.Prepare(c.i, c.in)
		require.NoError(t, err)
		out, err := c.i.Infer(c.in)
		require.NoError(t, err)
		outs, ins := buffers(t, out), buffers(t, c.in)
		require.NoError(t, k.Run(outs, ins))
		require.Zero(t, testing.AllocsPerRun(50, func() { _ = k.Run(outs, ins) }), "%v", c.i)
	}
}

func buffers(t *testing.T, ts []Type) (bs []*device.Buffer) {
	for _, x := range ts {
		b, err := device.Host().Alloc(x.Bytes())
		require.NoError(t, err)
		require.NoError(t, device.Host().Upload(b, 0, make([]byte, b.Len()))) // ids and labels among them: memory from the pool is not zero
		t.Cleanup(func() { _ = b.Release() })
		bs = append(bs, b)
	}
	return bs
}
