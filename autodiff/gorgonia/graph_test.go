package gorgonia

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// theirs is a case's graph on Gorgonia's own machine.
type theirs struct {
	in []*gorgonia.Node
	y  *gorgonia.Node
	vm gorgonia.VM
}

func buildTheirs(c fromCase, dt tensor.Dtype) (th theirs, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	g := gorgonia.NewGraph()
	for k, s := range c.shapes {
		th.in = append(th.in, leafOf(g, dt, fmt.Sprint("in", k), s))
	}
	th.y, err = c.f(th.in)
	return th, err
}

func leafOf(g *gorgonia.ExprGraph, dt tensor.Dtype, name string, shape []int, opts ...gorgonia.NodeConsOpt) *gorgonia.Node {
	opts = append([]gorgonia.NodeConsOpt{gorgonia.WithName(name)}, opts...)
	if len(shape) == 0 {
		return gorgonia.NewScalar(g, dt, opts...)
	}
	return gorgonia.NewTensor(g, dt, len(shape), append([]gorgonia.NodeConsOpt{gorgonia.WithShape(shape...)}, opts...)...)
}

// run gives the result for these arguments.
func (th *theirs) run(t testing.TB, args []arg) []float64 {
	t.Helper()
	if th.vm == nil {
		th.vm = gorgonia.NewTapeMachine(th.y.Graph())
		t.Cleanup(func() { _ = th.vm.Close() })
	}
	th.vm.Reset()
	for k, a := range args {
		v := theirValue(a)
		require.NoError(t, gorgonia.Let(th.in[k], v))
	}
	require.NoError(t, th.vm.RunAll())
	return append([]float64{}, theirNumbers(t, th.y.Value())...)
}

// differences of Σ weights·y.
func (th *theirs) differences(t testing.TB, args []arg) [][]float64 {
	loss := func() (s float64) {
		y := th.run(t, args)
		for i, w := range weights(len(y)) {
			s += w * y[i]
		}
		return s
	}
	const h = 1e-5
	grads := make([][]float64, len(args))
	for j, a := range args {
		grads[j] = make([]float64, len(a.v))
		for i, old := range a.v {
			a.v[i] = old + h
			up := loss()
			a.v[i] = old - h
			grads[j][i] = (up - loss()) / (2 * h)
			a.v[i] = old
		}
	}
	return grads
}

func (c fromCase) args(seed uint64) []arg {
	kind := c.kind
	if kind == nil {
		kind = normal
	}
	var as []arg
	for _, s := range c.shapes {
		as = append(as, kind(rng(seed), s...))
		seed++
	}
	return as
}

func TestGraphsFromGorgoniaComputeWhatTheTapeMachineDoesAndTheirGradientsAreRight(t *testing.T) {
	for i, c := range fromCases() {
		t.Run(c.name, func(t *testing.T) {
			th, err := buildTheirs(c, tensor.Float64)
			require.NoError(t, err)
			f, err := From(th.in, []*gorgonia.Node{th.y})
			require.NoError(t, err)
			args := c.args(uint64(i) * 10)
			o := outcomeOf(t, f, args, device.Float64)
			shape := device.Shape(th.y.Shape())
			requireOutcome(t, shape, th.run(t, args), th.differences(t, args), o, 1e-6, c.name)

			th32, err := buildTheirs(c, tensor.Float32)
			if err != nil {
				return // the case has constants of float64
			}
			f32, err := From(th32.in, []*gorgonia.Node{th32.y})
			require.NoError(t, err)
			y := outcomeOf(t, f32, args, device.Float32).y
			requireClose(t, o.y, y, 1e-4, "float32")
		})
	}
}

func TestThereAreAsManyGraphsAsTheReferenceTried(t *testing.T) {
	require.GreaterOrEqual(t, len(fromCases()), 106)
}

// wrongThere are the ops whose gradients Gorgonia itself gets wrong: it differs from finite
// differences, and ours do not.
var wrongThere = []fromCase{
	{"InverseSqrt", of([]int{4}), func(in []node) (node, error) { return gorgonia.InverseSqrt(in[0]) }, positive},
	{"OuterProd", of([]int{3}, []int{4}), func(in []node) (node, error) { return gorgonia.OuterProd(in[0], in[1]) }, nil},
	{"Dropout(x, 0)", of([]int{4, 5}), func(in []node) (node, error) { return gorgonia.Dropout(must(gorgonia.Square(in[0])), 0) }, nil},
}

// theirGradients are those of Σ weights·y that Gorgonia makes, nil where it fails.
func theirGradients(t *testing.T, c fromCase, args []arg) (grads [][]float64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	th, err := buildTheirs(c, tensor.Float64)
	require.NoError(t, err)
	shape := th.y.Shape()
	w := leafOf(th.y.Graph(), tensor.Float64, "w", shape, gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(weights(shape.TotalSize())))))
	cost, err := gorgonia.Sum(must(gorgonia.HadamardProd(th.y, w)))
	require.NoError(t, err)
	gs, err := gorgonia.Grad(cost, th.in...)
	if err != nil {
		return nil, err
	}
	th.vm = gorgonia.NewTapeMachine(th.y.Graph())
	defer th.vm.Close() //nolint:errcheck // the test is over
	for k, a := range args {
		require.NoError(t, gorgonia.Let(th.in[k], theirValue(a)))
	}
	if err := th.vm.RunAll(); err != nil {
		return nil, err
	}
	for _, g := range gs {
		grads = append(grads, append([]float64{}, theirNumbers(t, g.Value())...))
	}
	return grads, nil
}

func TestGradientsDifferFromGorgoniasOwnOnlyWhereTheirPageSaysSo(t *testing.T) {
	page, err := os.ReadFile("../../docs/gorgonia.md")
	require.NoError(t, err)
	_, names, found := strings.Cut(strings.Join(strings.Fields(string(page)), " "), "but for three that are wrong there (")
	require.True(t, found)
	names, _, _ = strings.Cut(names, ". Where")
	require.Equal(t, len(wrongThere), strings.Count(names, "`")/2, "%s", names)
	for i, c := range wrongThere {
		require.Contains(t, names, "`"+c.name+"`")
		args := c.args(uint64(1 + 10*i))
		th, err := buildTheirs(c, tensor.Float64)
		require.NoError(t, err)
		want := th.differences(t, args)
		f, err := From(th.in, []*gorgonia.Node{th.y})
		require.NoError(t, err)
		o := outcomeOf(t, f, args, device.Float64)
		for k := range want {
			requireClose(t, want[k], o.grads[k], 1e-6, c.name)
		}
		theirs, err := theirGradients(t, c, args)
		worst := 0.0
		for k := range theirs {
			for n, v := range theirs[k] {
				worst = math.Max(worst, math.Abs(v-want[k][n]))
			}
		}
		require.True(t, err != nil || worst > 0.1, "%s: Gorgonia's own is right now", c.name)
	}
}

func TestADeepGraphIsTaken(t *testing.T) {
	g := gorgonia.NewGraph()
	x := matrixOf(g, "x", 1, 3)
	y := x
	const depth = 1500
	for range depth {
		y = must(gorgonia.Add(y, x))
	}
	f, err := From([]node{x}, []node{y})
	require.NoError(t, err)
	in := autodiff.New([]float64{1, 2, 3}, 1, 3).RequireGrad()
	out := f.Call(in)
	require.Equal(t, []float64{depth + 1, 2 * (depth + 1), 3 * (depth + 1)}, numbers(t, out))
	grads, err := autodiff.Backward(autodiff.Sum(out))
	require.NoError(t, err)
	require.Equal(t, []float64{depth + 1, depth + 1, depth + 1}, numbers(t, grads.Of(in)))
}

func TestSeveralResultsAndInnerNodesAsArguments(t *testing.T) {
	g := gorgonia.NewGraph()
	x, y := matrixOf(g, "x", 2, 2), matrixOf(g, "y", 2, 2)
	product := must(gorgonia.HadamardProd(x, y))
	sum := must(gorgonia.Add(product, x))
	f, err := From([]node{product, x}, []node{sum, x, sum, must(gorgonia.Neg(product))})
	require.NoError(t, err, "y is beyond the cut")
	p, v := autodiff.New([]float64{1, 2, 3, 4}, 2, 2).RequireGrad(), autodiff.New([]float64{5, 6, 7, 8}, 2, 2).RequireGrad()
	out := f.CallAll(p, v)
	require.Len(t, out, 4)
	require.Equal(t, []float64{6, 8, 10, 12}, numbers(t, out[0]))
	require.Equal(t, []float64{5, 6, 7, 8}, numbers(t, out[1]))
	require.Equal(t, []float64{-1, -2, -3, -4}, numbers(t, out[3]))
	grads, err := autodiff.Backward(autodiff.Sum(autodiff.Add(autodiff.Add(out[0], out[2]), out[3])))
	require.NoError(t, err)
	require.Equal(t, []float64{1, 1, 1, 1}, numbers(t, grads.Of(p)))
	require.Equal(t, []float64{2, 2, 2, 2}, numbers(t, grads.Of(v)))
}

// Gorgonia gives a node's operands as another's once it has removed a node from a graph; here it
// replaces log(sigmoid(x)).
func TestAGraphThatGorgoniaChangedUnderTheHandIsTakenAsItIs(t *testing.T) {
	g := gorgonia.NewGraph()
	x, w := matrixOf(g, "x", 2, 2), matrixOf(g, "w", 2, 2)
	y := must(gorgonia.Add(x, w))
	for range 3 {
		y = must(gorgonia.Log(must(gorgonia.Sigmoid(must(gorgonia.HadamardProd(y, w))))))
		y = must(gorgonia.Sub(y, x))
	}
	f, err := From([]node{x, w}, []node{y})
	require.NoError(t, err)
	a, b := autodiff.New([]float64{0.1, 0.2, -0.3, 0.4}, 2, 2), autodiff.New([]float64{1, -2, 0.5, 0.3}, 2, 2)
	want := autodiff.Add(a, b)
	for range 3 {
		want = autodiff.Sub(autodiff.Log(autodiff.Sigmoid(autodiff.Mul(want, b))), a)
	}
	requireClose(t, numbers(t, want), numbers(t, f.Call(a, b)), 1e-12, "result")
}

func TestRowsByIndicesAndOtherOpsOfIntegersAreTaken(t *testing.T) {
	for axis, want := range [][]float64{{4, 5, 6, 7, 8, 9, 10, 11, 4, 5, 6, 7}, {1, 2, 1, 5, 6, 5, 9, 10, 9}} {
		g := gorgonia.NewGraph()
		x := matrixOf(g, "x", 3, 4)
		ids := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("ids"))
		y := must(gorgonia.ByIndices(x, ids, axis))
		f, err := From([]node{x, ids}, []node{y})
		require.NoError(t, err)
		xs := tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Float64, 0, 12)))
		which := tensor.New(tensor.WithBacking([]int{1, 2, 1}))
		require.NoError(t, gorgonia.Let(x, xs))
		require.NoError(t, gorgonia.Let(ids, which))
		vm := gorgonia.NewTapeMachine(g)
		require.NoError(t, vm.RunAll())
		require.Equal(t, want, y.Value().Data(), "Gorgonia's own")
		in := FromValue(xs).RequireGrad()
		out := f.Call(in, FromValue(which))
		require.Equal(t, want, numbers(t, out))
		grads, err := autodiff.Backward(autodiff.Sum(out))
		require.NoError(t, err)
		count := []float64{0, 2, 1, 0}
		for i, d := range numbers(t, grads.Of(in)) {
			require.Equal(t, count[[]int{i / 4, i % 4}[axis]], d)
		}
		require.ErrorIs(t, f.Call(in, autodiff.New([]int64{0, 9, 0})).Err(), kernels.ErrIndex)
		require.NoError(t, vm.Close())
	}

	g := gorgonia.NewGraph()
	n := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("n"))
	x := matrixOf(g, "x", 2, 3)
	sum := must(gorgonia.Add(must(gorgonia.ConvType(n, tensor.Int, tensor.Float64)), must(gorgonia.Slice(x, gorgonia.S(1)))))
	f, err := From([]node{n, x}, []node{sum, must(gorgonia.At(x, 1, 2)), must(gorgonia.HadamardProd(must(gorgonia.SizeOf(1, x)), x))})
	require.NoError(t, err)
	out := f.CallAll(autodiff.New([]int64{1, 2, 3}), autodiff.New([]float64{1, 2, 3, 10, 20, 30}, 2, 3))
	require.Equal(t, []float64{11, 22, 33}, numbers(t, out[0]))
	require.Equal(t, []float64{30}, numbers(t, out[1]))
	require.Empty(t, out[1].Shape())
	require.Equal(t, []float64{3, 6, 9, 30, 60, 90}, numbers(t, out[2]))
}

func TestAGraphWithAnOpOfWeftsIsTaken(t *testing.T) {
	x := matrixOf(gorgonia.NewGraph(), "x", 1, 2)
	typ := kernels.Type{Dtype: device.Float64, Shape: device.Shape{1, 2}}
	y := must(gorgonia.ApplyOp(&autodiff.Op{Instr: kernels.Unary{Fn: kernels.Gelu}, In: []kernels.Type{typ}, Out: typ}, x))
	f, err := From([]node{x}, []node{must(gorgonia.Neg(y))})
	require.NoError(t, err)
	in := autodiff.New([]float64{-1, 2}, 1, 2)
	require.Equal(t, numbers(t, autodiff.Neg(autodiff.GELU(in))), numbers(t, f.Call(in)))
}
