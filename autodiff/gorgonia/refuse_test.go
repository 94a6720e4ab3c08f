package gorgonia

import (
	"fmt"
	"hash"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/chewxy/hm"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func matrixOf(g *gorgonia.ExprGraph, name string, shape ...int) *gorgonia.Node {
	return leafOf(g, tensor.Float64, name, shape)
}

// theirOp is an op that a user wrote for Gorgonia.
type theirOp struct{}

func (theirOp) Arity() int { return 1 }
func (theirOp) Type() hm.Type {
	return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a'))
}
func (theirOp) InferShape(s ...gorgonia.DimSizer) (tensor.Shape, error) {
	return s[0].(tensor.Shape), nil
}
func (theirOp) Do(v ...gorgonia.Value) (gorgonia.Value, error) { return v[0], nil }
func (theirOp) ReturnsPtr() bool                               { return false }
func (theirOp) CallsExtern() bool                              { return false }
func (theirOp) OverwritesInput() int                           { return -1 }
func (theirOp) WriteHash(h hash.Hash)                          { fmt.Fprint(h, "theirs") }
func (theirOp) Hashcode() uint32                               { return 7 }
func (theirOp) String() string                                 { return "Theirs" }

func TestWhatCannotBeTakenIsRefusedByName(t *testing.T) {
	g, other := gorgonia.NewGraph(), gorgonia.NewGraph()
	x, y := matrixOf(g, "x", 3, 4), matrixOf(g, "y", 3, 4)
	sum := must(gorgonia.Add(x, y))
	constant := must(gorgonia.Add(must(gorgonia.Neg(gorgonia.NewConstant(1.0, gorgonia.In(g)))), gorgonia.NewConstant(2.0)))
	is := must(gorgonia.Lt(x, y, false))
	cost := must(gorgonia.Sum(must(gorgonia.SoftMax(must(gorgonia.HadamardProd(x, x))))))
	grads, err := gorgonia.Grad(cost, x)
	require.NoError(t, err)
	noise := gorgonia.GaussianRandomNode(g, tensor.Float64, 0, 1, 3, 4)
	shapeless := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("shapeless"))
	bytes := gorgonia.NewVector(g, tensor.Byte, gorgonia.WithShape(3), gorgonia.WithName("bytes"))
	integers := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("integers"))
	for _, c := range []struct {
		name    string
		in, out []*gorgonia.Node
		says    []string
	}{
		{"no outputs", []node{x}, nil, []string{"0 outputs; 1 to 64"}},
		{"a nil input", []node{nil}, []node{sum}, []string{"input 0 is nil"}},
		{"a nil output", []node{x}, []node{sum, nil}, []string{"output 1 is nil"}},
		{"two graphs", []node{x, matrixOf(other, "z", 3, 4)}, []node{sum}, []string{"input 1", `"z"`, "another graph"}},
		{"a node of no graph", []node{x}, []node{gorgonia.NewConstant(1.0)}, []string{"output 0", "in no graph"}},
		{"an input twice", []node{x, x}, []node{sum}, []string{"input 1", `"x"`, "twice", "name them apart"}},
		{"a leaf without value", []node{x}, []node{sum}, []string{`"y"`, "no value and is not among the inputs"}},
		{"an output of constants", []node{x}, []node{constant}, []string{"output 0", "depends on none of the inputs"}},
		{"no inputs", nil, []node{sum}, []string{"depends on none of the inputs"}},
		{"booleans", []node{x, y}, []node{is}, []string{"< false", "elemBinOp", "retSame"}},
		{"a gradient", []node{x}, grads, []string{"softmaxDiffOp", "part of a gradient", "autodiff.Backward"}},
		{"random numbers", []node{x}, []node{must(gorgonia.Add(x, noise))}, []string{"randomOp", "make it an input"}},
		{"an op that there is not", []node{x}, []node{must(gorgonia.Sparsemax(x))}, []string{"Sparsemax", "sparsemaxOp", "no such op in Weft"}},
		{"an op of a user's", []node{x}, []node{must(gorgonia.ApplyOp(theirOp{}, x))}, []string{"Theirs", "gorgonia.theirOp", "neither Gorgonia's nor Weft's"}},
		{"a leaf without shape", []node{shapeless}, []node{shapeless}, []string{"input 0", `"shapeless"`, "gorgonia.WithShape"}},
		{"a dtype", []node{bytes}, []node{bytes}, []string{"input 0", `"bytes"`, "uint8", "float32, float64, int, int32 and int64"}},
		{"mathematics of integers", []node{integers}, []node{must(gorgonia.Add(integers, integers))}, []string{"+ false", "expected float32 or float64"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := From(c.in, c.out)
			require.Nil(t, f)
			require.ErrorIs(t, err, ErrImport)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
			require.ErrorContains(t, err, "refuse_test.go:", "the user's line")
		})
	}
}

func TestAGraphThatDependsOnItselfIsRefused(t *testing.T) {
	g := gorgonia.NewGraph()
	a, b, c := matrixOf(g, "a", 1, 1), matrixOf(g, "b", 1, 1), matrixOf(g, "c", 1, 1)
	next := map[node][]node{a: {b}, b: {c}, c: {c}}
	_, err := topological([]node{a}, func(n node) []node { return next[n] })
	require.ErrorIs(t, err, ErrImport)
	require.ErrorContains(t, err, `"c" depends on itself`)
	next[c] = []node{a}
	_, err = topological([]node{a}, func(n node) []node { return next[n] })
	require.ErrorContains(t, err, `"a" depends on itself`)
	next[c] = nil
	next[a] = []node{b, c, b}
	order, err := topological([]node{a, b}, func(n node) []node { return next[n] })
	require.NoError(t, err)
	require.Equal(t, []node{c, b, a}, order)
}

func TestAFunctionFromGorgoniaTakesOnlyTheTypesOfItsGraph(t *testing.T) {
	g := gorgonia.NewGraph()
	x, w := matrixOf(g, "x", 3, 4), matrixOf(g, "weights", 4, 2)
	f, err := From([]node{x, w}, []node{must(gorgonia.Mul(x, w))})
	require.NoError(t, err)
	good, bad := autodiff.New(make([]float64, 12), 3, 4), autodiff.New(make([]float64, 10), 5, 2)
	_, file, line, _ := runtime.Caller(0)
	y := f.Call(good, bad)
	require.ErrorIs(t, y.Err(), kernels.ErrOperands)
	require.ErrorContains(t, y.Err(), fmt.Sprintf("%s:%d", filepath.Base(file), line+1))
	require.ErrorContains(t, y.Err(), "argument 1 (weights) is float64(5, 2), and the graph was built for float64(4, 2)")
	require.ErrorContains(t, f.Call(good, autodiff.New(make([]float32, 8), 4, 2)).Err(), "float32(4, 2)")
	require.ErrorContains(t, f.Call(good).Err(), "it takes 2 tensors, not 1")
	require.Error(t, f.Call(good, nil).Err())
	require.NoError(t, f.Call(good, autodiff.New(make([]float64, 8), 4, 2)).Err())
}

func TestAnOpWithoutTheFieldThatItWouldBeReadFromIsRefused(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(2, 3), gorgonia.WithName("x"))
	o := &opNode{op: gorgonia.Must(gorgonia.Sum(x, 1)).Op(), in: []kernels.Type{{Dtype: device.Float64, Shape: device.Shape{2, 3}}}}
	require.NoError(t, o.chooseBuilder())
	require.Equal(t, []int{1}, o.ints("along"))
	require.Nil(t, o.ints("across"))
	require.Zero(t, o.int("across"))
	require.EqualError(t, o.chooseBuilder(), "gorgonia.sumOp has no field across; is this another version of Gorgonia?")
}

func TestAnImportInTheBodyOfAFunctionIsToldSo(t *testing.T) {
	leaf := gorgonia.NewVector(gorgonia.NewGraph(), gorgonia.Float64, gorgonia.WithShape(3), gorgonia.WithName("x"))
	double := must(gorgonia.Add(leaf, leaf))
	var got error
	y := autodiff.Define("f", func(g *autodiff.Graph, x node) node {
		_, got = From([]node{leaf}, []node{double})
		return g.Neg(x)
	}).Call(autodiff.New([]float64{1}))
	require.NoError(t, y.Err())
	require.ErrorIs(t, got, autodiff.ErrFunction)
	require.ErrorContains(t, got, "may only build its graph")
}

func TestNoTensorHasNoValueOfGorgonias(t *testing.T) {
	_, err := ToValue(nil)
	require.ErrorIs(t, err, autodiff.ErrNil)
	require.Regexp(t, `refuse_test\.go:\d+: gorgonia\.ToValue`, err.Error())
}
