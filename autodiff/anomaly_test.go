package autodiff

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// thisLine is where it is called.
func thisLine() Site {
	_, file, line, _ := runtime.Caller(1)
	return Site{File: file, Line: line}
}

func TestEveryRecordedCallKnowsTheUsersLine(t *testing.T) {
	x := New([]float64{0.5, 0.6, 0.7, 0.8}, 2, 2).RequireGrad()
	ids := New([]int32{0, 1})
	sim := device.NewSim(device.SimConfig{})
	at := thisLine()
	made := []*Tensor{ // one per line
		Add(x, x),
		Sub(x, x),
		Neg(x),
		Scale(x, 2),
		Sum(x),
		Max(x, 0),
		Transpose(x),
		Softmax(x, 0),
		Concat(0, x, x),
		MatMulT(x, x, true, false),
		CrossEntropy(x, ids),
		Embedding(x, ids),
		Linear(x, x, Sum(x, 0)),
		LayerNorm(x, x, x, 1),
		Run(kernels.Unary{Fn: kernels.Exp}, x),
		network.Call(x, x),
		network.CallAll(x, x)[0],
		To(x, sim),
		small(x),
	}
	for i, y := range made[:len(made)-1] {
		require.NoError(t, y.Err())
		require.Equal(t, Site{File: at.File, Line: at.Line + 2 + i}, y.edge.Node.Site(), "%v", y)
	}
	require.Equal(t, smallAt, made[len(made)-1].edge.Node.Site())
	require.Zero(t, x.edge.Node.Site())
	require.Empty(t, Site{}.String())
}

// small is inlined into its callers.
func small(x *Tensor) *Tensor { smallAt = thisLine(); return Exp(x) }

var smallAt Site

func TestOneFunctionCalledFromManyPlacesKnowsEach(t *testing.T) {
	x := Scalar(0.1).RequireGrad()
	var down func(n int) *Tensor
	down = func(n int) *Tensor {
		if n == 0 {
			return Tanh(x)
		}
		return down(n - 1)
	}
	for i := range 3 * callsite.MaxSites { // more stacks than are remembered
		a, b := Tanh(x), thisLine()
		require.Equal(t, b, a.edge.Node.Site())
		c, d := Tanh(x), thisLine()
		require.Equal(t, d, c.edge.Node.Site())
		y := down(i % 40)
		require.Contains(t, y.edge.Node.Site().String(), "anomaly_test.go:")
		places[i%len(places)](t, x)
	}
}

var places = []func(t *testing.T, x *Tensor){
	func(t *testing.T, x *Tensor) { y, at := Tanh(x), thisLine(); require.Equal(t, at, y.edge.Node.Site()) },
	func(t *testing.T, x *Tensor) { y, at := Tanh(x), thisLine(); require.Equal(t, at, y.edge.Node.Site()) },
}

func TestAnErrorInANodeNamesTheCall(t *testing.T) {
	x := Scalar(2.0).RequireGrad()
	y, at := Exp(x), thisLine()
	_, err := Backward(y)
	require.NoError(t, err)
	_, err = Backward(y)
	require.ErrorIs(t, err, ErrGraphFreed)
	require.ErrorContains(t, err, fmt.Sprintf("backward of Exp, called at %s:%d: ", at.File, at.Line))
}

func TestAnomalyModeNamesTheCallThatMadeAGradientNaNOrInfinite(t *testing.T) {
	before := device.Host().Stats().Live
	sim := device.NewSim(device.SimConfig{})
	vector := func(v ...float64) func() *Tensor { return func() *Tensor { return New(v).RequireGrad() } }
	var at Site
	cases := map[string]struct {
		x, y  func() *Tensor
		f     func(x, y *Tensor) *Tensor
		fn    string
		what  string
		input int
	}{
		"log of 0":          {vector(1, 0), vector(1, 1), func(x, _ *Tensor) *Tensor { l := Log(x); at = thisLine(); return l }, "Log", "infinity", 0},
		"root of 0":         {vector(0, 2), vector(1, 1), func(x, y *Tensor) *Tensor { r := Sqrt(Mul(x, y)); at = thisLine(); return r }, "Sqrt", "infinity", 0},
		"0/0":               {vector(0, 1), vector(0, 1), func(x, y *Tensor) *Tensor { q := Div(x, y); at = thisLine(); return q }, "Div", "infinity", 0},
		"second input":      {vector(math.Inf(1), 1), vector(1, 1), func(x, y *Tensor) *Tensor { p := Mul(x, y); at = thisLine(); return Tanh(p) }, "Mul", "NaN", 1},
		"NaN in":            {vector(math.NaN(), 1), vector(1, 1), func(x, y *Tensor) *Tensor { p := Mul(x, y); at = thisLine(); return p }, "Mul", "NaN", 1},
		"inside a function": {vector(0, 1), vector(1, 1), func(x, y *Tensor) *Tensor { p := rooted.Call(x, y); at = thisLine(); return p }, "rooted", "infinity", 0},
		"another device": {vector(1, 0), vector(1, 1), func(x, _ *Tensor) *Tensor {
			l := Log(To(x, sim))
			at = thisLine()
			at.Line--
			return l
		}, "Log", "infinity", 0},
	}
	for name, c := range cases {
		x, y := c.x(), c.y()
		a := NewArena("pass")
		one := Ones(device.Float64, 2)
		require.NoError(t, a.Adopt(one))
		z := c.f(Mul(x, one), Mul(y, one))
		here := at
		g, err := BackwardWith(Options{Anomaly: true, RetainGraph: true}, Sum(z))
		require.Nil(t, g)
		var ae *AnomalyError
		require.ErrorAs(t, err, &ae, name)
		require.ErrorIs(t, err, ErrAnomaly)
		require.Equal(t, AnomalyError{Function: c.fn, File: here.File, Line: here.Line, What: c.what, Input: c.input}, *ae, name)
		require.ErrorContains(t, err, fmt.Sprintf("backward of %s, called at %s: a gradient is not finite: it made %s in the gradient of input %d", c.fn, here, c.what, c.input), name)
		g, err = BackwardWith(Options{}, Sum(z))
		require.NoError(t, err, "without the mode it goes on")
		require.NoError(t, err)
		require.Positive(t, g.Len())
		a.Free()
	}
	require.Equal(t, before, device.Host().Stats().Live)
	require.Zero(t, sim.Stats().Live)
}

var rooted = Define("rooted", func(g *Graph, x, y node) node { return g.Mul(g.Sqrt(x), y) })

func TestAnomalyModeTellsWhenNoFunctionIsToBlame(t *testing.T) {
	x := New([]float64{1, 2}).RequireGrad()
	bad := func(v float64) *Tensor { return New([]float64{1, v}) }
	var ae *AnomalyError

	y := Exp(x)
	onGrad(t, y, func(*Tensor) *Tensor { return bad(math.NaN()) })
	_, err := BackwardWith(Options{Anomaly: true}, Sum(y))
	require.ErrorAs(t, err, &ae)
	require.Equal(t, -1, ae.Input)
	require.Equal(t, "NaN", ae.What)
	require.ErrorContains(t, err, "backward of Exp, called at ")
	require.ErrorContains(t, err, "it was given NaN as the gradient of result 0")

	_, err = BackwardWith(Options{Anomaly: true, Grads: []*Tensor{bad(math.Inf(-1))}}, Exp(x))
	require.ErrorAs(t, err, &ae)
	require.Equal(t, "infinity", ae.What)
	require.Equal(t, -1, ae.Input)

	big := Exp(Scale(x, 1))
	_, err = BackwardWith(Options{Anomaly: true}, Scale(Sum(big), math.MaxFloat64), Scale(Sum(big), math.MaxFloat64))
	require.ErrorAs(t, err, &ae)
	require.Equal(t, -1, ae.Input, "the sum of two finite gradients is not finite")
}

func TestAnomalyModeLetsFiniteGradientsPass(t *testing.T) {
	x := normal(rng(3), 2, 3).tensor(device.Float32).RequireGrad()
	w := normal(rng(4), 3, 3).tensor(device.Float32).RequireGrad()
	y := Sum(network.Call(x, w))
	want, err := BackwardWith(Options{RetainGraph: true}, y)
	require.NoError(t, err)
	got, err := BackwardWith(Options{Anomaly: true}, y, Sum(ReLU(Scale(x, 0))))
	require.NoError(t, err)
	require.Equal(t, numbers(t, want.Of(w)), numbers(t, got.Of(w)))
}

func TestAnomaliesInSparseGradientsAreFoundWithoutMakingThemDense(t *testing.T) {
	table := normal(rng(1), 5, 2).tensor(device.Float64).RequireGrad()
	ids := New([]int32{3, 1})
	y := EmbeddingSparse(table, ids)
	g, err := BackwardWith(Options{Anomaly: true, RetainGraph: true}, Sum(y))
	require.NoError(t, err)
	require.True(t, g.Of(table).IsSparse())
	onGrad(t, y, func(g *Tensor) *Tensor { return Scale(g, math.NaN()) })
	_, err = BackwardWith(Options{Anomaly: true}, Sum(y))
	var ae *AnomalyError
	require.ErrorAs(t, err, &ae)
	require.Equal(t, "Gather", ae.Function)
	require.Equal(t, -1, ae.Input)

	out := checkpointed(t, func(in ...*Tensor) *Tensor { return EmbeddingSparse(table, in[0]) }, ids)
	g, err = BackwardWith(Options{Anomaly: true}, Sum(out))
	require.NoError(t, err)
	require.True(t, g.Of(table).IsSparse(), "also out of a checkpoint")
	require.Equal(t, []float64{0, 0, 1, 1, 0, 0, 1, 1, 0, 0}, numbers(t, g.Of(table)))
}

func BenchmarkWhatRecordingACallCosts(b *testing.B) {
	x, y := Rand(3, 3).RequireGrad(), Rand(3, 3)
	b.Run("part=op", func(b *testing.B) {
		for b.Loop() {
			Add(x, y)
		}
	})
	b.Run("part=site", func(b *testing.B) {
		var s callsite.Table
		for b.Loop() {
			s.Here()
		}
	})
}

func BenchmarkBackwardOfSmallNodes(b *testing.B) {
	x, w := Rand(3, 3).RequireGrad(), Rand(3, 3).RequireGrad()
	for _, ops := range []int{1, 3, 100} {
		b.Run(fmt.Sprint("nodes=", ops), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a := NewArena("pass")
				y := Rand(3, 3)
				_ = a.Adopt(y)
				y = Add(x, y)
				for range ops - 1 {
					y = Mul(y, w)
				}
				if _, err := Backward(Sum(y)); err != nil {
					b.Fatal(err)
				}
				a.Free()
			}
		})
	}
	b.Run("part=pull", func(b *testing.B) {
		y := Mul(x, w)
		g, err := oneLike(Sum(y))
		if err != nil {
			b.Fatal(err)
		}
		g.free()
		gy := ZerosLike(y)
		n := y.edge.Node
		b.ReportAllocs()
		for b.Loop() {
			outs, err := n.PullWith([]*Tensor{gy}, Pull{Retain: true})
			if err != nil {
				b.Fatal(err)
			}
			freeAll(outs)
		}
	})
}

func TestALeafsSumThatIsNotFiniteIsAnAnomalyOfTheLeaf(t *testing.T) {
	before := device.Host().Stats().Live
	a := Scalar(float32(1)).RequireGrad()
	big := func() *Tensor { return Scale(a, 3e38) }
	hooked := Scalar(float32(1)).RequireGrad()
	onGrad(t, hooked, func(g *Tensor) *Tensor { return Scale(Scale(g, 3e38), 10) })
	table := Ones(device.Float32, 4, 1).RequireGrad()
	twice := Scale(Sum(EmbeddingSparse(table, New([]int64{1, 1}))), 3e38)
	for name, roots := range map[string][]*Tensor{"two roots": {big(), big()}, "a hook": {hooked}, "rows of one id": {twice}} {
		g, err := BackwardWith(Options{RetainGraph: true}, roots...)
		require.NoError(t, err, name)
		g.Free()
		g, err = BackwardWith(Options{Anomaly: true}, roots...)
		require.Nil(t, g)
		var odd *AnomalyError
		require.ErrorAs(t, err, &odd, name)
		require.Equal(t, "infinity", odd.What)
		require.Equal(t, -1, odd.Input)
		require.Contains(t, odd.Function, "the leaf float32", name)
	}
	_, err := BackwardWith(Options{Anomaly: true}, big(), a)
	require.NoError(t, err)
	require.Equal(t, before, device.Host().Stats().Live)
}
