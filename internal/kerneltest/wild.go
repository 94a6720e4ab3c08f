package kerneltest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Wild draws an instruction with any parameters and any operand types, mostly ones that do not fit.
func Wild(r *rand.Rand) (kernels.Instr, []kernels.Type) {
	g := wild{gen{Rand: r}}
	in := make([]kernels.Type, g.IntN(5))
	for k := range in {
		in[k] = g.typ()
		if k > 0 && g.chance(0.7) { // without likeness little would ever fit
			in[k] = in[k-1]
		}
	}
	return g.instr(), in
}

type wild struct{ gen }

func (g wild) num() int {
	switch g.IntN(20) {
	case 0:
		return math.MinInt
	case 1:
		return math.MaxInt - g.IntN(3)
	case 2:
		return -1 - g.IntN(3)
	}
	return g.IntN(5)
}

func (g wild) nums() []int {
	if g.chance(0.2) {
		return nil
	}
	s := make([]int, g.IntN(4))
	if g.chance(0.02) {
		s = make([]int, 17)
	}
	for k := range s {
		s[k] = g.num()
	}
	return s
}

func (g wild) typ() kernels.Type {
	d := device.Dtype(1 + g.IntN(4))
	switch g.IntN(10) {
	case 0:
		d = device.Dtype(g.IntN(256))
	case 1, 2, 3, 4, 5:
		d = device.Float32
	}
	return kernels.Type{Dtype: d, Shape: g.nums()}
}

func (g wild) instr() kernels.Instr {
	b, c, e := g.chance(0.5), g.NormFloat64(), g.chance(0.5)
	n, w := g.num, g.window()
	all := []kernels.Instr{
		kernels.Unary{Fn: kernels.UnaryFn(g.IntN(20)), C: c}, kernels.Binary{Fn: kernels.BinaryFn(g.IntN(16))},
		kernels.MatMul{TransA: b, TransB: e}, kernels.Reduce{Fn: kernels.ReduceFn(g.IntN(4)), Axes: g.nums(), Keep: b},
		kernels.MaxGrad{Axes: g.nums(), Keep: b}, kernels.BroadcastTo{Shape: g.nums()}, kernels.Reshape{Shape: g.nums()},
		kernels.Transpose{Perm: g.nums()}, kernels.Slice{Axis: n(), Start: n(), Stop: n()},
		kernels.Pad{Axis: n(), Before: n(), After: n()}, kernels.Concat{Axis: n()}, kernels.Gather{},
		kernels.ScatterAdd{Rows: n()}, kernels.Softmax{Axis: n(), Log: b}, kernels.SoftmaxGrad{Axis: n(), Log: b},
		kernels.CrossEntropy{}, kernels.CrossEntropyGrad{}, kernels.Normalize{Eps: 1}, kernels.NormalizeGrad{Eps: 1},
		kernels.LayerNorm{Eps: 1}, kernels.LayerNormGrad{Eps: 1}, g.attending(), GradOf(g.attending(), e),
		kernels.Cast{To: device.Dtype(g.IntN(6))}, kernels.Fill{Type: g.typ(), C: c},
		g.update(), g.update(), g.update(), kernels.SumSquares{}, kernels.NonFinite{},
		kernels.OnRows{Of: kernels.Binary{Fn: kernels.Add}}, kernels.OnRows{Of: g.update()}, kernels.UpdateMany{Of: g.update()}, kernels.OnRows{},
		g.expression(), g.expression(), kernels.Viewed{Of: g.expression(), In: g.views()}, kernels.Viewed{Of: kernels.Unary{}, In: g.views()},
		kernels.Im2col{Window: w, Rows: b}, kernels.Col2im{Im2col: kernels.Im2col{Window: w, Rows: b}, Channels: n(), Height: n(), Width: n()},
		kernels.Conv2d{Window: w}, kernels.Conv2dGradX{Window: w, Height: n(), Width: n()}, kernels.Conv2dGradW{Window: w},
		kernels.MaxPool2d{Window: w}, kernels.MaxPool2dGrad{Window: w}, kernels.AvgPool2d{Window: w, Inside: b},
		kernels.AvgPool2dGrad{AvgPool2d: kernels.AvgPool2d{Window: w, Inside: b}, Height: n(), Width: n()},
		kernels.Random{Fn: kernels.RandomFn(g.IntN(3)), Type: g.typ(), P: g.Float64() * 1.2}, kernels.Dropout{P: g.Float64()*1.4 - 0.2},
	}
	return all[g.IntN(len(all))]
}

func (g wild) window() kernels.Window {
	pair := func() [2]int { return [2]int{g.num(), g.num()} }
	return kernels.Window{Kernel: pair(), Stride: pair(), Before: pair(), After: pair(), Dilation: pair()}
}

// expression is a map that mostly reads registers that are there.
func (g wild) expression() kernels.Map {
	i := g.gen.expression(g.nums(), 1+g.IntN(3))
	for k := range i.Steps {
		if g.chance(0.05) {
			i.Steps[k].Op = kernels.Fill{}
		}
		if g.chance(0.05) {
			i.Steps[k].Args[0] = g.num()
		}
	}
	for k := range i.Outs {
		if i.Outs[k].Fold != nil {
			i.Outs[k].Fold = &kernels.Reduce{Fn: kernels.ReduceFn(g.IntN(4)), Axes: g.nums()}
		}
		if g.chance(0.05) {
			i.Outs[k].Reg = g.num()
		}
	}
	return i
}

func (g wild) views() []*kernels.View {
	vs := make([]*kernels.View, 1+g.IntN(3))
	for k := range vs {
		if g.chance(0.5) {
			vs[k] = &kernels.View{Shape: g.nums(), Offset: g.num(), Strides: g.nums()}
		}
	}
	return vs
}

func (g wild) update() kernels.Update {
	all := Updates()
	i := all[g.IntN(len(all))]
	i.LR, i.WeightDecay, i.Eps, i.Step, i.AMSGrad, i.Nesterov, i.Missed = g.NormFloat64()+1, g.Float64(), 0.1, g.num(), g.chance(0.5), g.chance(0.5), g.chance(0.2)
	if g.chance(0.1) {
		i.Rule = "none"
	}
	return i
}

// CheckWild draws with [Wild]. A refusal must show the operands; what Infer accepts must run and
// agree with the oracle, if it is small. It says whether something ran.
func CheckWild(t testing.TB, d device.Device, r *rand.Rand) bool {
	t.Helper()
	i, in := Wild(r)
	out, err := i.Infer(in)
	if err != nil {
		require.ErrorIs(t, err, kernels.ErrOperands)
		require.ErrorContains(t, err, i.String())
		for _, x := range in {
			require.ErrorContains(t, err, x.String())
		}
		return false
	}
	g, xs := gen{Rand: r}, make([]Tensor, len(in))
	for _, ty := range append(out, in...) {
		require.NoError(t, ty.Shape.Check(), "%v of %v", i, in)
		require.True(t, ty.Dtype.Valid())
		if ty.Shape.Elems() > 5000 {
			return false
		}
	}
	for k, ty := range in {
		xs[k] = g.tensor(ty.Dtype, ty.Shape)
		if u, isUpdate := i.(kernels.Update); isUpdate && k == 2 {
			copy(xs[2:], g.state(u, ty.Dtype, ty.Shape))
			break
		}
		if mg, isMaxGrad := i.(kernels.MaxGrad); isMaxGrad && k == 1 {
			y, err := Oracle(kernels.Reduce{Fn: kernels.Max, Axes: mg.Axes, Keep: mg.Keep}, xs[:1], in[1:2])
			require.NoError(t, err)
			xs[k] = y[0]
		}
	}
	Check(t, d, i, xs...)
	return true
}
