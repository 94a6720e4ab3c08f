package gen

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

// families are the kinds of instructions that this package writes.
var families = []string{"Unary", "Binary", "Map", "Viewed", "Reduce", "MaxGrad", "SumSquares", "NonFinite", "BroadcastTo", "Reshape", "Transpose",
	"Slice", "Pad", "Concat", "ViewedMove", "Cast", "Fill"}

func TestKernelsAgreeWithTheDefinitionHoweverOperandsLie(t *testing.T) {
	for k, family := range families {
		t.Run(family, func(t *testing.T) {
			for n, like := range []writer{{}, {large: true}, {large: true, wide: true}} {
				d, r := newRig(t, like), rand.New(rand.NewPCG(uint64(k), uint64(n)))
				for range soak.Cases(20) {
					i, in := kerneltest.Case(r, family)
					kerneltest.Check(t, d, i, in...)
				}
			}
		})
	}
}

func tensor(r *rand.Rand, d device.Dtype, shape ...int) kerneltest.Tensor {
	x := kerneltest.New(d, shape, 0)
	for k := range x.V {
		x.V[k] = float64(float32(r.NormFloat64()))
	}
	return x
}

// TestFoldsOfManyElementsAgreeToo covers what small shapes do not reach: parts, whole blocks,
// several columns to a block.
func TestFoldsOfManyElementsAgreeToo(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for n, c := range []struct {
		shape device.Shape
		axes  []int
	}{
		{device.Shape{20001}, nil}, {device.Shape{16384}, nil}, {device.Shape{3, 9000}, []int{1}}, {device.Shape{10, 1028}, []int{1}},
		{device.Shape{1025, 2}, []int{1}}, {device.Shape{4, 9}, []int{0}}, {device.Shape{9000, 3}, []int{0}}, {device.Shape{600, 40}, []int{0}},
		{device.Shape{3, 4000}, []int{0}}, {device.Shape{30, 10, 33}, []int{0, 2}}, {device.Shape{40, 9, 16}, []int{1}},
		{device.Shape{3, 900, 8}, []int{1}}, {device.Shape{300, 2, 30}, []int{0, 2}}, {device.Shape{20, 10, 20, 4}, []int{0, 2}},
	} {
		t.Run(fmt.Sprint(c.shape, c.axes), func(t *testing.T) {
			for _, d := range []device.Dtype{device.Float32, device.Float64}[:2-n%2] {
				dev := newRig(t, writer{large: d == device.Float32})
				x, m := tensor(r, d, c.shape...), kernels.Map{Shape: c.shape, Steps: []kernels.Step{{Op: kernels.Unary{Fn: kernels.Neg}}}}
				for _, fn := range []kernels.ReduceFn{kernels.Max, kernels.Sum, kernels.Mean} {
					m.Outs = append(m.Outs, kernels.Out{Reg: 1, Fold: &kernels.Reduce{Fn: fn, Axes: c.axes}})
				}
				m.Outs = append(m.Outs, kernels.Out{Reg: 1})
				kerneltest.Check(t, dev, m, x)
			}
		})
	}
}

func TestSumsOfFloat32DoNotDriftHoweverMany(t *testing.T) {
	const n = 1 << 18
	d, x := newRig(t, writer{}), kerneltest.New(device.Float32, device.Shape{n}, 0.1)
	got, err := kerneltest.RunOn(t, d, kernels.Reduce{Fn: kernels.Sum}, []kernels.Type{{Dtype: device.Float32}}, []kerneltest.Tensor{x})
	require.NoError(t, err)
	require.Equal(t, float64(float32(n*x.V[0])), got[0].V[0])
}

func TestNothingFoldsToNothing(t *testing.T) {
	d := newRig(t, writer{})
	for _, s := range []device.Shape{{0}, {3, 0}, {0, 4}, {2, 0, 5}} {
		for _, axes := range [][]int{nil, {0}, {len(s) - 1}} {
			kerneltest.Check(t, d, kernels.Reduce{Axes: axes}, kerneltest.New(device.Float32, s, 1))
		}
		kerneltest.Check(t, d, kernels.Unary{Fn: kernels.Exp}, kerneltest.New(device.Float64, s, 1))
		kerneltest.Check(t, d, kernels.NonFinite{}, kerneltest.New(device.Float64, s, 1))
		kerneltest.Check(t, d, kernels.SumSquares{}, kerneltest.New(device.Float64, s, 1), kerneltest.New(device.Float64, nil, 3))
	}
}

func TestAxesAreSwappedInTiles(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, wide := range []bool{false, true} {
		d := newRig(t, writer{wide: wide})
		for _, dt := range []device.Dtype{device.Float32, device.Float64, device.Int32, device.Int64} {
			for _, c := range []struct {
				shape device.Shape
				perm  []int
			}{{device.Shape{8, 8}, []int{1, 0}}, {device.Shape{33, 65}, []int{1, 0}}, {device.Shape{64, 32}, []int{1, 0}}, {device.Shape{3, 40, 50}, []int{0, 2, 1}},
				{device.Shape{35, 3, 70}, []int{2, 0, 1}}, {device.Shape{2, 9, 10, 11}, []int{3, 1, 2, 0}}} {
				kerneltest.Check(t, d, kernels.Transpose{Perm: c.perm}, tensor(r, dt, c.shape...))
			}
		}
	}
}

func TestManyPiecesAreJoined(t *testing.T) {
	r, d := rand.New(rand.NewPCG(5, 5)), newRig(t, writer{})
	var in []kerneltest.Tensor
	for k := range 70 {
		in = append(in, tensor(r, device.Float32, 3, k%5))
	}
	kerneltest.Check(t, d, kernels.Concat{Axis: 1}, in...)
}

func TestResultsLieOverOperandsWhereTheyMay(t *testing.T) {
	r, d, ran := rand.New(rand.NewPCG(6, 6)), newRig(t, writer{}), map[device.Dtype]int{}
	for range soak.Cases(300) {
		i, in := kerneltest.Case(r, []string{"Unary", "Binary", "Map", "Viewed", "SumSquares"}[r.IntN(5)])
		types := make([]kernels.Type, len(in))
		for k, x := range in {
			types[k] = x.Type
		}
		if r.IntN(2) == 0 {
			i, in, types = narrowed(r, i, in)
		}
		out, err := i.Infer(types)
		require.NoError(t, err)
		n, m := r.IntN(len(out)), r.IntN(len(in))
		if !kernels.Overwrites(i, types, n, m) || out[n].Bytes() == 0 {
			continue
		}
		ran[out[n].Dtype]++
		var raw [][]byte
		for k, x := range in {
			raw = append(raw, encoded(types[k], x.V))
		}
		require.Equal(t, runBytes(t, d, i, types, raw, -1, -1), runBytes(t, d, i, types, raw, n, m), "%v of %v", i, types)
	}
	for _, d := range []device.Dtype{device.BFloat16, device.Float32, device.Float64} {
		require.Greater(t, ran[d], 5, d)
	}
}
