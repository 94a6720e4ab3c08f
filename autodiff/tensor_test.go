package autodiff

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// line is the file:line of the caller.
func line() string {
	_, file, n, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", file, n)
}

func TestABadOpCarriesTheCallersLineAndSoDoesAllThatFollows(t *testing.T) {
	x := New([]float64{1, 2}).RequireGrad()
	at, bad := line(), Add(x, New([]float64{1, 2, 3}))
	var e *Error
	require.ErrorAs(t, bad.Err(), &e)
	require.Equal(t, at, e.At)
	require.Equal(t, "Add", e.Op)
	require.ErrorIs(t, e, kernels.ErrOperands)
	require.Contains(t, e.Error(), at+": operands do not fit: Add of float64(2), float64(3): ")

	f := Define("f", func(g *Graph, a, b node) node { return g.Mul(a, b) })
	after := Sum(LayerNorm(f.Call(Softmax(bad, 0), x), x, x, 1))
	require.Same(t, bad.Err(), after.Err())
	require.Contains(t, after.String(), "tensor(error: "+at)
	_, err := Values[float64](after)
	require.Same(t, bad.Err(), err)
	_, err = after.Item()
	require.Same(t, bad.Err(), err)
	_, err = after.Acquire()
	require.Same(t, bad.Err(), err)
	_, err = Backward(after)
	require.ErrorIs(t, err, e)
	require.Same(t, bad.Err(), after.Detach().Err())
	require.Same(t, bad.Err(), after.RequireGrad().Err())
	require.Same(t, bad.Err(), f.CallAll(after, x)[0].Err())
}

func TestAMistakeInABodyIsReportedWithItsLineInTheBody(t *testing.T) {
	var at string
	f := Define("f", func(g *Graph, a, b node) node {
		at = line()
		c := g.MatMul(a, b) // the line after
		return g.Reshape(g.Sum(g.Transpose(c), -1), 7)
	})
	err := f.Call(New([]float64{1, 2}, 1, 2), New([]float64{1, 2, 3}, 3, 1)).Err()
	var n int
	_, scan := fmt.Sscanf(at[len(at)-2:], "%d", &n)
	require.NoError(t, scan)
	require.ErrorContains(t, err, fmt.Sprintf("%s%d: operands do not fit: MatMul(", at[:len(at)-2], n+1))
}

func TestAnAbsentTensorIsAnErrorAndNoPanic(t *testing.T) {
	var none *Tensor
	require.ErrorContains(t, none.Err(), "nil tensor")
	require.ErrorContains(t, Add(Scalar(1.0), none).Err(), "nil tensor")
	require.ErrorContains(t, Sum(none, -1).Err(), "nil tensor")
	require.ErrorContains(t, Reshape(none, -1).Err(), "nil tensor")
	require.ErrorContains(t, Concat(-1, none).Err(), "nil tensor")
	require.ErrorContains(t, LayerNorm(none, none, none, 1).Err(), "nil tensor")
	require.ErrorContains(t, To(none, device.Host()).Err(), "nil tensor")
	require.ErrorContains(t, none.Detach().Err(), "nil tensor")
	require.ErrorContains(t, none.RequireGrad().Err(), "nil tensor")
	_, err := none.Item()
	require.ErrorContains(t, err, "nil tensor")
	_, err = Values[float32](none)
	require.ErrorContains(t, err, "nil tensor")
	require.Equal(t, "tensor(nil)", none.String())
	require.False(t, none.RequiresGrad())
	require.True(t, none.IsLeaf())
	require.Nil(t, none.Owner())
	require.Equal(t, device.ID{}, none.Device())
	require.Equal(t, device.Invalid, none.Dtype())
	require.Empty(t, none.Shape())
}

func TestTensorsAreMadeOfWhatWasAskedForOrSayWhyNot(t *testing.T) {
	data := []float32{1, 2, 3, 4, 5, 6}
	x := New(data, 2, 3)
	data[0] = 9
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, numbers(t, x), "the data were copied")
	require.Equal(t, device.Shape{2, 3}, x.Shape())
	require.Equal(t, "tensor float32(2, 3) on cpu", x.String())
	require.Equal(t, "tensor float32(6) on cpu, requires grad", New(data).RequireGrad().String())
	require.Contains(t, Exp(New(data).RequireGrad()).String(), "from Exp")
	require.Equal(t, device.Shape{}, Scalar(int32(3)).Shape())
	require.Equal(t, []float64{2.5, 2.5}, numbers(t, Full(device.Float64, 2.5, 2)))
	require.Equal(t, []float64{0, 0}, numbers(t, Zeros(device.Int64, 2)))
	require.Equal(t, []float64{1}, numbers(t, Ones(device.Float32)))
	require.Empty(t, numbers(t, Zeros(device.Float32, 3, 0)))
	for i, v := range []*Tensor{Scalar(7.0), Scalar(float32(7)), Scalar(int32(7)), Scalar(int64(7)), New([]int64{7}, 1, 1)} {
		got, err := v.Item()
		require.NoError(t, err, i)
		require.Equal(t, 7.0, got, i)
	}
	for name, c := range map[string]struct {
		bad  *Tensor
		want error
	}{
		"too few": {New(data, 7), device.ErrBadShape}, "negative": {New(data, -2, -3), device.ErrBadShape},
		"negative fill": {Zeros(device.Float32, -1), device.ErrBadShape}, "too large": {Ones(device.Float32, 1<<40, 1<<15), device.ErrMemory},
		"beyond": {Ones(device.Float32, 1<<40, 1<<40), device.ErrBadShape}, "no dtype": {Zeros(device.Dtype(9), 2), kernels.ErrOperands},
		"random": {Rand(-1), device.ErrBadShape}, "random too large": {Rand(1 << 55), device.ErrMemory},
		"integer parameter": {New([]int32{1}).RequireGrad(), ErrDtype},
		"no instruction":    {Run(nil, x), ErrFunction},
	} {
		require.ErrorIs(t, c.bad.Err(), c.want, name)
		require.ErrorContains(t, c.bad.Err(), "tensor_test.go:", name)
	}
	_, err := Values[float64](x)
	require.ErrorIs(t, err, ErrDtype)
	_, err = x.Item()
	require.ErrorIs(t, err, ErrNotScalar)
}

func TestRandomTensorsComeFromTheirSource(t *testing.T) {
	require.Equal(t, numbers(t, RandFrom(rng(1), 50)), numbers(t, RandFrom(rng(1), 50)))
	require.NotEqual(t, numbers(t, RandFrom(rng(1), 50)), numbers(t, RandFrom(rng(2), 50)))
	require.NotEqual(t, numbers(t, Rand(50)), numbers(t, Rand(50)))
	sum, squares := 0.0, 0.0
	for _, v := range numbers(t, NormalFrom(rng(1), 2, 20_000)) {
		sum, squares = sum+v, squares+v*v
	}
	require.InDelta(t, 0, sum/20_000, 0.1)
	require.InDelta(t, 4, squares/20_000, 0.2)
	for _, v := range numbers(t, Rand(1000)) {
		require.True(t, v >= 0 && v < 1)
	}
}

func TestDefineRefusesWhatIsNotABody(t *testing.T) {
	for _, body := range []any{
		nil, 3, func() {}, func(g *Graph) {}, func(x node) node { return x }, func(g *Graph, x int) node { return nil },
		func(g *Graph, xs ...node) node { return nil }, func(g *Graph, x node) (node, error) { return x, nil }, (func(g *Graph, x node) node)(nil),
	} {
		f := Define("f", body)
		require.Equal(t, "f", f.Name())
		require.ErrorIs(t, f.Call(Scalar(1.0)).Err(), ErrFunction)
		require.ErrorContains(t, f.Call(Scalar(1.0)).Err(), "tensor_test.go:")
	}
	f := Define("f", func(g *Graph, x, y node) node { return g.Add(x, y) })
	require.ErrorContains(t, f.Call(Scalar(1.0)).Err(), "it takes 2 tensors, not 1")
	many := &Func{name: "many", arity: -1, build: func(g *Graph, in []node) []node { return make([]node, 0) }}
	require.ErrorContains(t, many.CallAll()[0].Err(), "it has 0 results; 1 to 64 are possible")
	require.ErrorContains(t, Define("adam", func(g *Graph, p, d, m, v node) node {
		return g.Apply(kernels.Update{Rule: kernels.Adam, Step: 1}, p, d, m, v)
	}).Call(Scalar(1.0), Scalar(1.0), Scalar(1.0), Scalar(1.0)).Err(), "it has 3 results; use ApplyAll")
}

func TestAFunctionMayReturnItsInputsAndOneResultTwice(t *testing.T) {
	host := device.Host().Stats().Live
	a := NewArena("pass")
	f := Define("f", func(g *Graph, x node) (node, node, node) { y := g.Neg(x); return x, y, y })
	x := owned(t, a, device.Host(), 2).RequireGrad()
	outs := f.CallAll(x)
	require.Len(t, outs, 3)
	require.Equal(t, []float64{1, 1}, numbers(t, outs[0]))
	g, err := Backward(Sum(outs[0]), Sum(outs[1]), Sum(Scale(outs[2], 3)))
	require.NoError(t, err)
	require.Equal(t, []float64{-3, -3}, numbers(t, g.Of(x)))
	a.Free()
	require.Equal(t, host, device.Host().Stats().Live)
}

func TestTiesForTheMaximumShareTheGradient(t *testing.T) {
	x := New([]float64{3, 3, 1, 0, 5, 2}, 2, 3).RequireGrad()
	g, err := BackwardWith(Options{Grads: []*Tensor{New([]float64{10, 20})}}, Max(x, 1))
	require.NoError(t, err)
	require.Equal(t, []float64{5, 5, 0, 0, 20, 0}, numbers(t, g.Of(x)))
	g, err = Backward(Max(Full(device.Float32, 2, 4).RequireGrad()))
	require.NoError(t, err)
	for _, d := range g.All() {
		require.Equal(t, []float64{0.25, 0.25, 0.25, 0.25}, numbers(t, d))
	}
}

func TestAnIdOutOfRangeIsATypedErrorOfTheForward(t *testing.T) {
	table := New([]float64{1, 2, 3}, 3, 1).RequireGrad()
	host := device.Host().Stats().Live
	for _, bad := range []*Tensor{
		Embedding(table, New([]int64{0, 3})), Embedding(table, New([]int32{-1})), CrossEntropy(New([]float64{1, 2}, 1, 2), New([]int32{2})),
	} {
		var e *kernels.IndexError
		require.ErrorAs(t, bad.Err(), &e)
		require.ErrorContains(t, bad.Err(), "tensor_test.go:")
	}
	require.Equal(t, host, device.Host().Stats().Live)
}

func TestAnErrorNamesEachOpOnce(t *testing.T) {
	x, v, labels := Zeros(device.Float32, 2, 3), Zeros(device.Float32, 4), New([]int64{7, 8})
	loss := Define("loss", func(g *Graph, x, labels node) node {
		return g.CrossEntropy(g.Softmax(x, 1), labels)
	})
	for want, y := range map[string]*Tensor{
		"operands do not fit: Add of float32(2, 3), float32(4): the shapes do not broadcast":                                   Add(x, v),
		"CrossEntropy: index out of range: 7 at position 0; expected 0 ≤ id < 3":                                               CrossEntropy(x, labels),
		"Embedding: Gather: index out of range: 7 at position 0; expected 0 ≤ id < 2":                                          Embedding(x, labels),
		"loss: instruction 1: CrossEntropy: index out of range: 7 at position 0; expected 0 ≤ id < 3":                          loss.Call(x, labels),
		"operands do not fit: MatMul(transA=false, transB=false) of float32(2, 3), float32(4): expected two or more axes each": MatMul(x, v),
	} {
		_, text, _ := strings.Cut(y.Err().Error(), ": ") // after the line
		require.Equal(t, want, text)
	}
}

func TestEveryEagerFunctionIsTheGraphsMethodOfThatName(t *testing.T) {
	x := positive(rng(1), 2, 3).tensor(device.Float64)
	y := positive(rng(2), 2, 3).tensor(device.Float64)
	w, b := positive(rng(3), 3, 2).tensor(device.Float64), positive(rng(4), 3).tensor(device.Float64)
	id := New([]int32{1, 0})
	two := func(f func(*Graph, node, node) node) func(*Graph, []node) node {
		return func(g *Graph, in []node) node { return f(g, in[0], in[1]) }
	}
	one := func(f func(*Graph, node) node) func(*Graph, []node) node {
		return func(g *Graph, in []node) node { return f(g, in[0]) }
	}
	for i, c := range []struct {
		eager *Tensor
		graph func(g *Graph, in []node) node
		in    []*Tensor
	}{
		{Add(x, y), two((*Graph).Add), []*Tensor{x, y}}, {Sub(x, y), two((*Graph).Sub), []*Tensor{x, y}},
		{Mul(x, y), two((*Graph).Mul), []*Tensor{x, y}}, {Div(x, y), two((*Graph).Div), []*Tensor{x, y}},
		{Neg(x), one((*Graph).Neg), []*Tensor{x}}, {Exp(x), one((*Graph).Exp), []*Tensor{x}}, {Log(x), one((*Graph).Log), []*Tensor{x}},
		{Sqrt(x), one((*Graph).Sqrt), []*Tensor{x}}, {Tanh(x), one((*Graph).Tanh), []*Tensor{x}}, {Sigmoid(x), one((*Graph).Sigmoid), []*Tensor{x}},
		{ReLU(x), one((*Graph).ReLU), []*Tensor{x}}, {GELU(x), one((*Graph).GELU), []*Tensor{x}},
		{Scale(x, 3), one(func(g *Graph, x node) node { return g.Scale(x, 3) }), []*Tensor{x}},
		{Shift(x, 3), one(func(g *Graph, x node) node { return g.Shift(x, 3) }), []*Tensor{x}},
		{MatMul(x, w), two((*Graph).MatMul), []*Tensor{x, w}},
		{MatMulT(x, y, true, false), two(func(g *Graph, x, y node) node { return g.MatMulT(x, y, true, false) }), []*Tensor{x, y}},
		{Sum(x, -1), one(func(g *Graph, x node) node { return g.Sum(x, -1) }), []*Tensor{x}},
		{Mean(x, 0), one(func(g *Graph, x node) node { return g.Mean(x, 0) }), []*Tensor{x}},
		{Max(x), one(func(g *Graph, x node) node { return g.Max(x) }), []*Tensor{x}},
		{Reshape(x, 3, -1), one(func(g *Graph, x node) node { return g.Reshape(x, 3, -1) }), []*Tensor{x}},
		{BroadcastTo(b, 2, 3), one(func(g *Graph, x node) node { return g.BroadcastTo(x, 2, 3) }), []*Tensor{b}},
		{Transpose(x), one(func(g *Graph, x node) node { return g.Transpose(x) }), []*Tensor{x}},
		{Slice(x, -1, 1, 3), one(func(g *Graph, x node) node { return g.Slice(x, -1, 1, 3) }), []*Tensor{x}},
		{Concat(-1, x, y), func(g *Graph, in []node) node { return g.Concat(-1, in...) }, []*Tensor{x, y}},
		{Embedding(x, id), two((*Graph).Embedding), []*Tensor{x, id}}, {CrossEntropy(x, id), two((*Graph).CrossEntropy), []*Tensor{x, id}},
		{Softmax(x, -1), one(func(g *Graph, x node) node { return g.Softmax(x, -1) }), []*Tensor{x}},
		{LogSoftmax(x, 0), one(func(g *Graph, x node) node { return g.LogSoftmax(x, 0) }), []*Tensor{x}},
		{LayerNorm(x, b, b, 1), two(func(g *Graph, x, b node) node { return g.LayerNorm(x, b, b, 1) }), []*Tensor{x, b}},
		{Linear(w, x, b), func(g *Graph, in []node) node { return g.Linear(in[0], in[1], in[2]) }, []*Tensor{w, x, b}},
		{Cast(x, device.Int32), one(func(g *Graph, x node) node { return g.Cast(x, device.Int32) }), []*Tensor{x}},
	} {
		f := &Func{name: "f", arity: -1, build: func(g *Graph, in []node) []node { return []node{c.graph(g, in)} }}
		want := f.Call(c.in...)
		require.NoError(t, want.Err(), i)
		require.Equal(t, want.Type(), c.eager.Type(), i)
		require.Equal(t, numbers(t, want), numbers(t, c.eager), i)
	}
}
