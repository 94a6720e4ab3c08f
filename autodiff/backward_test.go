package autodiff

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

func TestTheDocumentationExampleHasTheRightGradients(t *testing.T) {
	t1, t2 := New([]float64{1, 2, 3}).RequireGrad(), New([]float64{4, 5, 6}).RequireGrad()
	t4 := New([]float64{7, 8, 9}).RequireGrad()
	loss := Sum(Mul(Add(t1, t2), t4))
	v, err := loss.Item()
	require.NoError(t, err)
	require.Equal(t, 5*7+7*8+9*9.0, v)
	g, err := Backward(loss)
	require.NoError(t, err)
	require.Equal(t, 3, g.Len())
	require.Len(t, g.All(), 3)
	require.Equal(t, []float64{7, 8, 9}, numbers(t, g.Of(t1)))
	require.Equal(t, []float64{7, 8, 9}, numbers(t, g.Of(t2)))
	require.Equal(t, []float64{5, 7, 9}, numbers(t, g.Of(t4)))
	require.Nil(t, g.Of(loss))
}

func TestSeveralRootsAddUp(t *testing.T) {
	x, z := Scalar(3.0).RequireGrad(), Scalar(5.0).RequireGrad()
	y := Mul(x, x)
	g, err := Backward(y, Mul(y, z), x, y)
	require.NoError(t, err)
	require.Equal(t, []float64{6 + 6*5 + 1 + 6}, numbers(t, g.Of(x)))
	require.Equal(t, []float64{9}, numbers(t, g.Of(z)))
}

func TestRootsStartFromTheGivenGradients(t *testing.T) {
	x := New([]float64{1, 2}).RequireGrad()
	given := New([]float64{10, 100})
	g, err := BackwardWith(Options{Grads: []*Tensor{given, nil}}, Mul(x, x), Sum(x))
	require.NoError(t, err)
	require.Equal(t, []float64{21, 401}, numbers(t, g.Of(x)))
	require.Equal(t, []float64{10, 100}, numbers(t, given), "it is only read")
	g, err = BackwardWith(Options{Grads: []*Tensor{given}}, x)
	require.NoError(t, err, "a leaf can be a root")
	require.Equal(t, []float64{10, 100}, numbers(t, g.Of(x)))
}

func TestATensorThatIsUsedManyTimesGathersAllItsGradients(t *testing.T) {
	x := Scalar(2.0).RequireGrad()
	sum := Scale(x, 1)
	for k := 2; k <= 20; k++ {
		sum = Add(sum, Scale(x, float64(k)))
	}
	g, err := Backward(sum)
	require.NoError(t, err)
	require.Equal(t, []float64{210}, numbers(t, g.Of(x)))
}

func TestTheGraphCanBeRetainedAndIsOtherwiseUsedUp(t *testing.T) {
	a := NewArena("pass")
	defer a.Free()
	x := Scalar(2.0).RequireGrad()
	in := Scalar(3.0)
	require.NoError(t, a.Adopt(in))
	y := Exp(Mul(x, in))
	for range 2 {
		g, err := BackwardWith(Options{RetainGraph: true}, y)
		require.NoError(t, err)
		requireClose(t, []float64{3 * math.Exp(6)}, numbers(t, g.Of(x)), 1e-12, "gradient")
	}
	_, err := Backward(y)
	require.NoError(t, err)
	before := device.Host().Stats().Live
	_, err = Backward(y)
	require.ErrorIs(t, err, ErrGraphFreed)
	require.ErrorContains(t, err, "backward of Exp")
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestDetachStopsGradientsAndKeepsTheValue(t *testing.T) {
	x := Scalar(3.0).RequireGrad()
	d := Mul(x, x).Detach()
	require.False(t, d.RequiresGrad())
	require.True(t, d.IsLeaf())
	require.Equal(t, []float64{9}, numbers(t, d))
	g, err := Backward(Mul(d, x))
	require.NoError(t, err)
	require.Equal(t, []float64{9}, numbers(t, g.Of(x)))
	require.NoError(t, x.Detach().RequireGrad().Err())
	require.ErrorIs(t, Add(x, New([]float64{1, 2}, 3)).Detach().Err(), device.ErrBadShape)
}

func TestRootsThatCannotStartABackwardAreTypedErrors(t *testing.T) {
	x := New([]float64{1, 2}).RequireGrad()
	a, b := NewPassArena("1", nil), NewPassArena("2", nil)
	defer a.Free()
	defer b.Free()
	in := func(o *Arena) *Tensor { s := Scalar(1.0); require.NoError(t, o.Adopt(s)); return Mul(Sum(x), s) }
	freed := NewPassArena("3", nil)
	late := Scalar(1.0).RequireGrad()
	require.NoError(t, freed.Adopt(late))
	gone := Exp(late)
	freed.Free()
	sim := To(New([]float64{1, 2}), device.NewSim(device.SimConfig{}))
	cases := map[string]struct {
		o     Options
		roots []*Tensor
		want  error
		text  string
	}{
		"none":               {Options{}, nil, ErrNoRoots, "no tensors provided"},
		"not a scalar":       {Options{}, []*Tensor{Sum(x), x}, ErrNotScalar, "root 1: float64(2) is not a scalar"},
		"no gradient":        {Options{}, []*Tensor{Scalar(1.0)}, ErrNoGrad, "root 0: requires grad is not set on tensor float64() on cpu: nothing that it was computed from requires a gradient"},
		"nil":                {Options{}, []*Tensor{Sum(x), nil}, nil, "a nil tensor"},
		"failed":             {Options{}, []*Tensor{Add(x, New([]float64{1, 2, 3}))}, nil, "operands do not fit"},
		"freed":              {Options{}, []*Tensor{gone}, ErrFreed, "copy what is to outlive it before"},
		"two passes":         {Options{}, []*Tensor{in(a), in(b)}, ErrMixedPasses, "of pass 1 meets one of pass 2"},
		"too many gradients": {Options{Grads: []*Tensor{nil, nil}}, []*Tensor{Sum(x)}, ErrGradient, "2 output gradients for 1 roots"},
		"wrong gradient":     {Options{Grads: []*Tensor{New([]float32{1, 2})}}, []*Tensor{x}, ErrGradient, "float32(2) on cpu for a root float64(2) on cpu"},
		"gradient elsewhere": {Options{Grads: []*Tensor{sim}}, []*Tensor{x}, ErrGradient, "on sim:0 for a root"},
		"failed gradient":    {Options{Grads: []*Tensor{Failed(errKernel)}}, []*Tensor{x}, errKernel, ""},
	}
	before := device.Host().Stats().Live
	for name, c := range cases {
		g, err := BackwardWith(c.o, c.roots...)
		require.Nil(t, g, name)
		require.ErrorContains(t, err, c.text, name)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
		}
		if name != "freed" {
			require.ErrorContains(t, err, "backward_test.go:", name)
		}
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestADiamondRunsEveryNodeOnce(t *testing.T) {
	x := Scalar(0.5).RequireGrad()
	top := Tanh(x)
	for range 60 { // 2⁶⁰ paths
		top = Add(top, Neg(Scale(top, 0.5)))
	}
	task := NewTask([]Edge{top.edge}, nil)
	require.NoError(t, task.Deliver(top.edge, transient(t, 1)))
	steps := 0
	for {
		ran, err := task.step(Pull{}, func(_, g *Tensor) error {
			requireClose(t, []float64{(1 - math.Pow(math.Tanh(0.5), 2)) * math.Pow(0.5, 60)}, numbers(t, g), 1e-12, "gradient")
			g.free()
			return nil
		})
		require.NoError(t, err)
		if !ran {
			break
		}
		steps++
	}
	require.Equal(t, 60*3+2, steps)
}

func TestADeepChainDoesNotOverflow(t *testing.T) {
	a := NewArena("pass")
	x := Scalar(1.0).RequireGrad()
	require.NoError(t, a.Adopt(x))
	y := x
	for range 10_000 {
		y = Shift(y, 1)
	}
	g, err := Backward(y)
	require.NoError(t, err)
	require.Equal(t, []float64{1}, numbers(t, g.Of(x)))
	require.Equal(t, []float64{10_001}, numbers(t, y))
	a.Free()
}

func TestUnusedResultsOfAFunctionNeedNoGradient(t *testing.T) {
	f := Define("three", func(g *Graph, x, y node) (node, node, node) {
		return g.Mul(x, y), g.Exp(x), g.Neg(y)
	})
	x, y := Scalar(2.0).RequireGrad(), Scalar(3.0).RequireGrad()
	outs := f.CallAll(x, y)
	g, err := Backward(outs[1])
	require.NoError(t, err)
	requireClose(t, []float64{math.Exp(2)}, numbers(t, g.Of(x)), 1e-12, "gradient")
	require.Nil(t, g.Of(y), "the second result does not depend on y")
	require.ErrorIs(t, f.Call(x, y).Err(), ErrFunction, "Call is for one result")

	outs = f.CallAll(x, Scalar(3.0))
	require.True(t, outs[0].RequiresGrad())
	require.False(t, outs[2].RequiresGrad(), "it depends on no parameter")
	_, err = Backward(outs[2])
	require.ErrorIs(t, err, ErrNoGrad)
}

func TestAnAbsentGradientTravelsAndFreesWhatWasSaved(t *testing.T) {
	a := NewArena("pass")
	defer a.Free()
	x := Scalar(2.0)
	require.NoError(t, a.Adopt(x))
	x.RequireGrad()
	y := Exp(Exp(x))
	n := y.edge.Node
	source := NewSource("send", []*Tensor{y})
	task := NewTask(nil, []*Node{source})
	require.NoError(t, task.Start(source, []*Tensor{nil}))
	for {
		ran, err := task.step(Pull{}, func(_, _ *Tensor) error { panic("no gradient reaches the leaf") })
		require.NoError(t, err)
		if !ran {
			break
		}
	}
	require.Zero(t, task.Left())
	require.True(t, n.gone)
}

func TestGradientsAreAccumulatedByTheirHolderUntilHeSettles(t *testing.T) {
	before := device.Host().Stats().Live
	x := Scalar(1.0).RequireGrad()
	var g Gradients
	require.Zero(t, g.Len())
	for range 3 {
		require.NoError(t, g.Accumulate(x, transient(t, 2)))
	}
	require.Equal(t, []float64{6}, numbers(t, g.Of(x)))
	require.Equal(t, before+1, device.Host().Stats().Live)
	a := NewArena("pass")
	require.NoError(t, g.Settle(a))
	require.Same(t, a, g.Of(x).Owner())
	a.Free()
	require.Equal(t, before, device.Host().Stats().Live)

	var late Gradients
	require.NoError(t, late.Accumulate(x, transient(t, 2)))
	require.ErrorIs(t, late.Settle(a), ErrFreed)
	require.Equal(t, before, device.Host().Stats().Live, "nobody else would free them")
	require.NoError(t, g.Accumulate(Scalar(0.0), transient(t, 2)))
	g.Free()
	require.Equal(t, before, device.Host().Stats().Live)
	require.NoError(t, g.Accumulate(x, transient(t, 2)), "it can be used again")
	require.NoError(t, g.Settle(nil))
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestSumsAreMadeInPlaceOnlyWhereNobodyElseSeesTheValue(t *testing.T) {
	before := device.Host().Stats().Live
	for _, seen := range []bool{false, true} {
		sum := transient(t, 2)
		was := sum.buf
		var other *Tensor
		if seen {
			var err error
			other, err = sum.share()
			require.NoError(t, err)
		}
		got, err := accumulate(sum, transient(t, 3))
		require.NoError(t, err)
		require.Equal(t, []float64{5}, numbers(t, got))
		require.Equal(t, !seen, got.buf == was)
		if seen {
			require.Equal(t, []float64{2}, numbers(t, other))
			other.free()
		}
		self, err := got.share()
		require.NoError(t, err)
		twice, err := accumulate(got, self)
		require.NoError(t, err)
		require.Equal(t, []float64{10}, numbers(t, twice))
		twice.free()
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestAfterASumThatFailedTheTableGivesItsErrorAndLeaksNothing(t *testing.T) {
	before := device.Host().Stats().Live
	x, y := Scalar(1.0).RequireGrad(), Scalar(1.0).RequireGrad()
	var sum, part, other Gradients
	require.NoError(t, sum.Accumulate(x, transient(t, 2)))
	bad := transient(t, 3)
	bad.free() // it cannot be added
	part.of = map[*Tensor]*Tensor{x: bad}
	require.ErrorIs(t, sum.Merge(&part), ErrFreed)
	require.Nil(t, sum.Of(x))
	require.ErrorIs(t, sum.Merge(&part), ErrFreed, "also where there is nothing more to add")
	require.ErrorIs(t, sum.Accumulate(y, transient(t, 4)), ErrFreed)
	require.ErrorIs(t, other.Merge(&sum), ErrFreed, "it spreads")
	require.ErrorIs(t, other.Settle(nil), ErrFreed)
	sum.Free()
	require.Equal(t, before, device.Host().Stats().Live)
	require.NoError(t, sum.Accumulate(x, transient(t, 2)), "a freed table is a new one")
	sum.Free()
}

func TestSparseGradientsCountAsTheirRows(t *testing.T) {
	table := Ones(device.Float64, 1000, 2).RequireGrad()
	g, err := Backward(Sum(EmbeddingSparse(table, New([]int64{1, 3, 1}))))
	require.NoError(t, err)
	require.EqualValues(t, 3*(8+2*8), g.Bytes())
}

func TestWhoTakesGradientsHasThemForHimselfAndTheBackwardKeepsNone(t *testing.T) {
	a, b := New([]float32{1, 2}).RequireGrad(), New([]float32{3, 4}).RequireGrad()
	hooks := 0
	_, err := a.OnAccumulated(func(_, _ *Tensor) error { hooks++; return nil })
	require.NoError(t, err)
	got := map[*Tensor][]float32{}
	take := func(leaf, grad *Tensor) error {
		defer Release(grad)
		v, err := Values[float32](grad)
		got[leaf] = v
		return err
	}
	loss := func() *Tensor { return Sum(Add(Mul(a, b), a)) }
	grads, err := BackwardWith(Options{Take: take}, loss())
	require.NoError(t, err)
	require.Zero(t, grads.Len())
	require.Equal(t, map[*Tensor][]float32{a: {4, 5}, b: {1, 2}}, got)
	require.Equal(t, 1, hooks)
	bad := errors.New("no room")
	_, err = BackwardWith(Options{Take: func(_, grad *Tensor) error { Release(grad); return bad }}, loss())
	require.ErrorIs(t, err, bad)
}
