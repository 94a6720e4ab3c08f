package autodiff

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// What goes silently wrong on Gorgonia's own machines, one test each.

func TestTwoGradientsOnOneGraphAreBothRight(t *testing.T) {
	f := Define("both", func(g *Graph, x node) (node, node) {
		y := g.Mul(x, x)
		return y, g.Scale(y, 10)
	})
	x := Scalar(3.0).RequireGrad()
	outs := f.CallAll(x)
	for i, want := range []float64{6, 60} {
		g, err := BackwardWith(Options{RetainGraph: true}, outs[i])
		require.NoError(t, err)
		require.Equal(t, []float64{want}, numbers(t, g.Of(x)))
	}
}

// The names of the two leaves have one 32-bit hash, so Gorgonia's compiler would take them for one
// node.
func TestNodesAreToldApartByMoreThanAHash(t *testing.T) {
	hash := func(s string) uint32 { h := fnv.New32a(); h.Write([]byte(s)); return h.Sum32() }
	const a, b = "w673879", "w1180600"
	require.Equal(t, hash(a), hash(b))
	f := &Func{name: "difference", arity: 2, build: func(g *Graph, in []node) []node {
		gorgonia.WithName(a)(in[0])
		gorgonia.WithName(b)(in[1])
		return []node{g.Sub(in[0], in[1])}
	}}
	v, err := f.Call(Scalar(5.0), Scalar(3.0)).Item()
	require.NoError(t, err)
	require.Equal(t, 2.0, v)
}

func TestEqualOpsOnEqualShapesStayDistinctNodes(t *testing.T) {
	f := Define("twins", func(g *Graph, x, y node) node {
		if x == y {
			panic("two inputs of one shape are one node")
		}
		a, b := g.Scale(x, 2), g.Scale(y, 2)
		if a == b || a == g.Scale(x, 2) || a.Op().Hashcode() == b.Op().Hashcode() {
			panic("two nodes are one")
		}
		return g.Sub(a, b)
	})
	require.Equal(t, []float64{4, 2}, numbers(t, f.Call(New([]float64{3, 2}), New([]float64{1, 1}))))
}

func TestANonDifferentiableOpOnTheSideDoesNotBreakTheGradient(t *testing.T) {
	f := Define("side", func(g *Graph, x node) (node, node) {
		h := g.Tanh(x)
		_ = g.Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, h, x) // has no rule, and nobody uses it
		return g.Mul(h, x), g.Cast(h, device.Int32)
	})
	x := New([]float64{0.5, -1}).RequireGrad()
	outs := f.CallAll(x)
	require.NoError(t, outs[0].Err())
	require.False(t, outs[1].RequiresGrad())
	g, err := BackwardWith(Options{Grads: []*Tensor{New([]float64{1, 1})}}, outs[0])
	require.NoError(t, err)
	var want []float64
	for _, v := range []float64{0.5, -1} {
		th := math.Tanh(v)
		want = append(want, th+v*(1-th*th))
	}
	requireClose(t, want, numbers(t, g.Of(x)), 1e-12, "gradient")
}

func TestANonDifferentiableOpOnThePathIsAnErrorAndNotAZero(t *testing.T) {
	f := Define("path", func(g *Graph, x node) node {
		return g.Add(x, g.Apply(kernels.SoftmaxGrad{Axis: 0}, x, x))
	})
	x := New([]float64{0.5, -1})
	require.NoError(t, f.Call(x).Err())
	err := f.Call(New([]float64{0.5, -1}).RequireGrad()).Err()
	require.ErrorIs(t, err, ErrGradient)
	require.ErrorContains(t, err, "SoftmaxGrad(axis=0, log=false) has no gradient rule")
}

func TestRunningTwiceNeedsNoReset(t *testing.T) {
	f := Define("square", func(g *Graph, x node) node { return g.Mul(x, x) })
	for _, v := range []float64{3, 5} {
		got, err := f.Call(Scalar(v)).Item()
		require.NoError(t, err)
		require.Equal(t, v*v, got)
	}
}

func TestEarlierResultsSurviveLaterRunsAndIntermediateOnesAreNotClobbered(t *testing.T) {
	f := Define("both", func(g *Graph, x node) (node, node) {
		e := g.Exp(x)
		return e, g.Shift(e, 1) // in place on Gorgonia's machine
	})
	a := NewArena("pass")
	defer a.Free()
	x := New([]float64{1})
	require.NoError(t, a.Adopt(x))
	first := f.CallAll(x)
	y := New([]float64{2})
	require.NoError(t, a.Adopt(y))
	f.CallAll(y)
	require.Equal(t, []float64{math.E}, numbers(t, first[0]))
	require.Equal(t, []float64{math.E + 1}, numbers(t, first[1]))
}

func TestGradientsDoNotAddUpOverRuns(t *testing.T) {
	x := Scalar(3.0).RequireGrad()
	for range 3 {
		g, err := Backward(Mul(x, x))
		require.NoError(t, err)
		require.Equal(t, []float64{6}, numbers(t, g.Of(x)))
	}
}

func TestAPanicInABodyBecomesAnErrorAndLeavesTheLocksFree(t *testing.T) {
	f := Define("broken", func(g *Graph, x node) node { panic("oh") })
	for range 2 {
		err := f.Call(Scalar(1.0)).Err()
		require.ErrorIs(t, err, ErrFunction)
		require.ErrorContains(t, err, "broken: bad function: panic while building the graph: oh")
		require.ErrorContains(t, err, "traps_test.go:")
	}
	require.NoError(t, Add(Scalar(float32(1)), New([]float32{1, 2, 3, 4, 5, 6, 7})).Err())
}

var errKernel = errors.New("kernel failed")

func TestOneFunctionRunsOnManyGoroutinesWithTheBitsOfASerialRun(t *testing.T) {
	f := Define("mlp", func(g *Graph, x, w1, b1, w2 node) node {
		return g.Mean(g.LogSoftmax(g.MatMul(g.GELU(g.Linear(x, w1, b1)), w2), -1))
	})
	r := rng(4)
	w := []*Tensor{
		normal(r, 6, 8).tensor(device.Float32).RequireGrad(), normal(r, 8).tensor(device.Float32).RequireGrad(),
		normal(r, 8, 3).tensor(device.Float32).RequireGrad(),
	}
	var xs []arg
	for range 8 {
		xs = append(xs, normal(r, 5, 6))
	}
	step := func(i int) (loss []float64, grads [][]float64) {
		a := NewArena("pass")
		defer a.Free()
		x := xs[i].tensor(device.Float32)
		require.NoError(t, a.Adopt(x))
		l := f.Call(x, w[0], w[1], w[2])
		g, err := Backward(l)
		require.NoError(t, err)
		for _, p := range w {
			grads = append(grads, numbers(t, g.Of(p)))
		}
		return numbers(t, l), grads
	}
	type result struct {
		loss  []float64
		grads [][]float64
	}
	var together [8]result
	var wg sync.WaitGroup
	for i := range together {
		wg.Go(func() {
			for range 10 {
				together[i].loss, together[i].grads = step(i)
			}
		})
	}
	wg.Wait() // the first calls compiled at the same time
	for i := range together {
		loss, grads := step(i)
		require.Equal(t, result{loss, grads}, together[i])
	}
}

func TestAWeightIsSharedByFunctionsOnManyGoroutines(t *testing.T) {
	w := normal(rng(1), 4, 4).tensor(device.Float64).RequireGrad()
	want := numbers(t, MatMulT(w, w, true, false))
	var wg sync.WaitGroup
	for i := range 6 {
		f := Define(fmt.Sprint("f", i), func(g *Graph, a, b node) node { return g.MatMulT(a, b, true, false) })
		wg.Go(func() {
			for range 10 {
				y := f.Call(w, w)
				_, err := Backward(Sum(y))
				require.NoError(t, err)
				require.Equal(t, want, numbers(t, y))
			}
		})
	}
	wg.Wait()
}

func TestNodesThatAreNotTheGraphsAreRefusedByName(t *testing.T) {
	var kept node
	require.NoError(t, Define("other", func(g *Graph, x node) node { kept = x; return g.Neg(x) }).Call(Scalar(1.0)).Err())
	for name, c := range map[string]struct {
		body func(g *Graph, x node) node
		want string
	}{
		"Gorgonia's op":        {func(g *Graph, x node) node { return g.Neg(gorgonia.Must(gorgonia.Tanh(x))) }, "operand 0 comes from Gorgonia's own op tanh"},
		"Gorgonia's result":    {func(g *Graph, x node) node { return gorgonia.Must(gorgonia.Tanh(x)) }, "result 0: bad function: operand 0 comes from Gorgonia's own op tanh"},
		"another graph's node": {func(g *Graph, x node) node { return g.Add(x, kept) }, "operand 1 (in0) belongs to another graph"},
		"an absent node":       {func(g *Graph, x node) node { return g.Add(nil, x) }, "operand 0 is nil"},
		"an absent result":     {func(g *Graph, x node) node { return nil }, "result 0"},
		"Gorgonia's gradient": {func(g *Graph, x node) node {
			ds, err := gorgonia.Grad(g.Sum(g.Mul(g.Tanh(x), x)), x)
			if err != nil {
				panic(err)
			}
			return ds[0]
		}, "Non Differentiable WRTs"}, // for Gorgonia there are no edges
		"an op over Gorgonia's gradient": {func(g *Graph, x node) node {
			ds, err := gorgonia.Grad(g.Sum(g.Tanh(x)), x)
			if err != nil {
				panic(err)
			}
			return g.Neg(ds[0])
		}, ""},
	} {
		err := Define("f", c.body).Call(New([]float64{1, 2})).Err()
		require.ErrorIs(t, err, ErrFunction, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestABodyThatComputesIsToldSoInsteadOfHanging(t *testing.T) {
	var inner error
	var f *Func
	f = Define("outer", func(g *Graph, x node) node {
		inner = Add(New([]float64{1}), New([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9})).Err() // surely not compiled yet
		if inner == nil {
			inner = errors.New("it computed")
		}
		require.ErrorIs(t, f.Call(Scalar(1.0), Scalar(2.0)).Err(), ErrFunction)
		if g.Type(x).Dtype == device.Float64 {
			require.ErrorIs(t, f.Call(Scalar(int64(1))).Err(), ErrFunction)
		}
		return g.Neg(x)
	})
	require.NoError(t, f.Call(Scalar(1.0)).Err())
	require.ErrorIs(t, inner, ErrFunction)
	require.ErrorContains(t, inner, "may only build its graph")
}
