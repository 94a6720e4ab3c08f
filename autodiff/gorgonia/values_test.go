package gorgonia

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

func TestValuesOfEveryKindComeFromGorgoniaAndGoBack(t *testing.T) {
	for _, c := range []struct {
		v     gorgonia.Value
		d     device.Dtype
		shape device.Shape
		want  []float64
	}{
		{gorgonia.NewF32(2.5), device.Float32, device.Shape{}, []float64{2.5}},
		{gorgonia.NewF64(2.5), device.Float64, device.Shape{}, []float64{2.5}},
		{gorgonia.NewI(3), device.Int64, device.Shape{}, []float64{3}},
		{gorgonia.NewI32(3), device.Int32, device.Shape{}, []float64{3}},
		{gorgonia.NewI64(3), device.Int64, device.Shape{}, []float64{3}},
		{tensor.New(tensor.WithBacking([]float32{1, 2})), device.Float32, device.Shape{2}, []float64{1, 2}},
		{tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]int{1, 2})), device.Int64, device.Shape{1, 2}, []float64{1, 2}},
		{tensor.New(tensor.WithBacking([]int32{1, 2})), device.Int32, device.Shape{2}, []float64{1, 2}},
		{tensor.New(tensor.WithBacking([]int64{1, 2})), device.Int64, device.Shape{2}, []float64{1, 2}},
	} {
		x := FromValue(c.v)
		require.NoError(t, x.Err())
		require.Equal(t, c.d, x.Dtype())
		require.True(t, c.shape.Equal(x.Shape()), "%v", x)
		require.Equal(t, c.want, numbers(t, x))
		back, err := ToValue(x)
		require.NoError(t, err)
		require.Equal(t, c.want, numbers(t, FromValue(back)))
		require.True(t, back.Shape().Eq(c.v.Shape()))
	}
}

func TestViewsAndColumnsAreCopiedRowByRow(t *testing.T) {
	whole := tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Float64, 0, 12)))
	view, err := whole.Slice(nil, gorgonia.S(1, 3))
	require.NoError(t, err)
	x := FromValue(view)
	require.Equal(t, []float64{1, 2, 5, 6, 9, 10}, numbers(t, x))
	require.True(t, device.Shape{3, 2}.Equal(x.Shape()))

	turned := whole.Clone().(*tensor.Dense)
	require.NoError(t, turned.T())
	require.Equal(t, []float64{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, numbers(t, FromValue(turned)))

	columns := tensor.New(tensor.WithShape(2, 3), tensor.AsFortran([]float64{1, 2, 3, 4, 5, 6}))
	require.Equal(t, []float64{1, 4, 2, 5, 3, 6}, columns.Data())
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, numbers(t, FromValue(columns)))
}

func TestAValueIsACopy(t *testing.T) {
	v := tensor.New(tensor.WithBacking([]float64{1, 2}))
	x := FromValue(v)
	v.Set(0, 7.0)
	require.Equal(t, []float64{1, 2}, numbers(t, x))
}

func TestValuesThatAreNoTensorsOfWeftsAreRefused(t *testing.T) {
	for _, v := range []gorgonia.Value{nil, (*tensor.Dense)(nil), gorgonia.NewB(true), tensor.New(tensor.WithBacking([]byte{1})),
		tensor.New(tensor.WithBacking([]string{"x"})), tensor.CSRFromCoord(tensor.Shape{2, 2}, []int{0, 1}, []int{0, 1}, []float64{1, 2})} {
		require.Error(t, FromValue(v).Err())
	}
	_, err := ToValue(nil)
	require.Error(t, err)
}

func TestParametersComeFromNodesAndGoBackToThem(t *testing.T) {
	g := gorgonia.NewGraph()
	w := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(2, 2), gorgonia.WithName("w"), gorgonia.WithInit(gorgonia.GlorotN(1)))
	b := gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName("b"), gorgonia.WithValue(3.0))
	ps, err := FromParams(w, b)
	require.NoError(t, err)
	require.Equal(t, w.Value().Data(), numbers(t, ps[0]))
	for _, p := range ps {
		require.True(t, p.RequiresGrad() && p.IsLeaf())
	}
	nodes := []node{w, b}
	require.NoError(t, ToParams(nodes, []*autodiff.Tensor{autodiff.New([]float64{1, 2, 3, 4}, 2, 2), autodiff.Scalar(5.0)}))
	require.Equal(t, []float64{1, 2, 3, 4}, w.Value().Data())
	require.Equal(t, 5.0, b.Value().Data())

	for _, bad := range [][]*autodiff.Tensor{{ps[0]}, {ps[0], nil}, {ps[0], autodiff.New([]float64{1})}, {ps[0], autodiff.Scalar(float32(1))}} {
		require.Error(t, ToParams(nodes, bad))
		require.Equal(t, []float64{1, 2, 3, 4}, w.Value().Data(), "all or none")
	}
	require.ErrorIs(t, ToParams([]node{nil}, ps[:1]), ErrImport)
	_, err = FromParams(nil)
	require.ErrorContains(t, err, "nil, has no value")
	_, err = FromParams(matrixOf(g, "empty", 2, 2))
	require.ErrorContains(t, err, `"empty", has no value`)
}

func TestConstantsAreCopiedAtOnceAndFollowTheirArgumentsToADevice(t *testing.T) {
	g := gorgonia.NewGraph()
	x := matrixOf(g, "x", 2, 2)
	v := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))
	c := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(2, 2), gorgonia.WithName("c"), gorgonia.WithValue(v))
	f, err := From([]node{x}, []node{must(gorgonia.HadamardProd(x, c))})
	require.NoError(t, err)
	v.Set(0, 100.0)
	in := autodiff.New([]float64{1, 1, 1, 2}, 2, 2)
	require.Equal(t, []float64{1, 2, 3, 8}, numbers(t, f.Call(in)))
	sim := device.NewSim(device.SimConfig{})
	there := autodiff.To(in, sim).RequireGrad()
	for range 2 {
		y := autodiff.Sum(f.Call(there))
		require.Equal(t, []float64{14}, numbers(t, y))
		grads, err := autodiff.Backward(y)
		require.NoError(t, err)
		require.Equal(t, []float64{1, 2, 3, 4}, numbers(t, grads.Of(there)))
	}
}

func TestAFunctionFromGorgoniaIsSafeForConcurrentUse(t *testing.T) {
	c := fromComposed()[0]
	th, err := buildTheirs(c, tensor.Float64)
	require.NoError(t, err)
	f, err := From(th.in, []node{th.y})
	require.NoError(t, err)
	args := c.args(1)
	var in []*autodiff.Tensor
	for _, a := range args {
		in = append(in, a.tensor(device.Float64).RequireGrad())
	}
	want := numbers(t, f.Call(in...))
	done := make(chan []float64)
	for range 8 {
		go func() {
			v, _ := autodiff.Values[float64](f.Call(in...))
			done <- v
		}()
	}
	for range 8 {
		require.Equal(t, want, <-done)
	}
}
