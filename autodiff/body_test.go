package autodiff

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
)

// deep calls fn from a stack of many frames.
func deep(n int, fn func()) {
	if n == 0 {
		fn()
		return
	}
	deep(n-1, fn)
}

func TestABodyThatComputesIsToldSoInsteadOfWaitingForItself(t *testing.T) {
	a := Rand(3, 5).RequireGrad()
	fresh := 2
	shape := func() *Tensor { fresh++; return Rand(fresh, 1, 1) } // for which nothing is compiled yet
	loss := Define("square sum", func(g *Graph, x node) node { return g.Sum(g.Mul(x, x)) }).Call(a)
	require.NoError(t, loss.Err())
	d := Definition{Body: func(g *Graph, _ []node) ([]node, error) { return nil, nil }}
	for name, compute := range map[string]func() error{
		"an op":               func() error { return Exp(shape()).Err() },
		"an op of deep calls": func() (err error) { deep(1000, func() { err = Exp(shape()).Err() }); return err },
		"a backward":          func() error { _, err := Backward(loss); return err },
		"a definition":        func() error { _, err := DefineWith("d", d); return err },
	} {
		var got error
		y := Define(name, func(g *Graph, x node) node {
			got = compute()
			return g.Neg(x)
		}).Call(a)
		require.ErrorIs(t, got, ErrFunction, name)
		require.ErrorContains(t, got, "may only build its graph", name)
		require.NoError(t, y.Err(), name)
	}
}

func TestAPanicInABodyNamesItsOwnLine(t *testing.T) {
	y := Define("broken", func(g *Graph, x node) node {
		deep(3, func() { _ = []int{}[g.rank(x)] })
		return x
	}).Call(Rand(2))
	require.ErrorIs(t, y.Err(), ErrFunction)
	require.ErrorContains(t, y.Err(), "body_test.go:47")
}

func TestEverySetOfResultsHasItsGradients(t *testing.T) {
	const results = 7
	f := &Func{name: "many", arity: 1, build: func(g *Graph, in []*gorgonia.Node) (outs []*gorgonia.Node) {
		for k := range results {
			outs = append(outs, g.Scale(in[0], float64(k+1)))
		}
		return outs
	}}
	x := New([]float64{1, 2}).RequireGrad()
	for mask := 1; mask < 1<<results; mask++ {
		outs, want := f.CallAll(x), 0.
		var roots, grads []*Tensor
		for k, y := range outs {
			if mask&(1<<k) != 0 {
				roots, grads, want = append(roots, y), append(grads, Ones(device.Float64, 2)), want+float64(k+1)
			}
		}
		got, err := BackwardWith(Options{Grads: grads}, roots...)
		require.NoError(t, err)
		v, err := Values[float64](got.Of(x))
		require.NoError(t, err)
		require.Equal(t, []float64{want, want}, v)
	}
}
