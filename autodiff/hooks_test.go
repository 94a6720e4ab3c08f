package autodiff

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

// onGrad registers a hook that must be accepted.
func onGrad(t testing.TB, x *Tensor, do func(g *Tensor) *Tensor) (remove func()) {
	t.Helper()
	remove, err := x.OnGrad(do)
	require.NoError(t, err)
	return remove
}

func TestAHookSeesTheWholeGradientOfItsTensorOnceAndMayReplaceIt(t *testing.T) {
	x := New([]float64{1, 2}).RequireGrad()
	y := Mul(x, x)
	var seen [][]float64
	var kept *Tensor
	onGrad(t, y, func(g *Tensor) *Tensor { seen, kept = append(seen, numbers(t, g)), g; return Scale(g, 10) })
	onGrad(t, y, func(g *Tensor) *Tensor { seen = append(seen, numbers(t, g)); return nil })
	onGrad(t, y, func(g *Tensor) *Tensor { return g })
	g, err := Backward(Sum(y), Sum(Scale(y, 2)))
	require.NoError(t, err)
	require.Equal(t, [][]float64{{3, 3}, {30, 30}}, seen, "two functions read y, and the second hook sees what the first gave")
	require.Equal(t, []float64{60, 120}, numbers(t, g.Of(x)))
	_, err = Values[float64](kept)
	require.ErrorIs(t, err, ErrFreed)
	require.ErrorContains(t, err, "belonged to a hook")
}

func TestHooksOnALeafRunBeforeAndAfterItsGradientIsAccumulatedOncePerBackward(t *testing.T) {
	w := New([]float64{1, 2}).RequireGrad()
	var order []string
	onGrad(t, w, func(g *Tensor) *Tensor { order = append(order, fmt.Sprint("grad ", numbers(t, g))); return Neg(g) })
	remove, err := w.OnAccumulated(func(leaf, g *Tensor) error {
		require.Same(t, w, leaf)
		order = append(order, fmt.Sprint("accumulated ", numbers(t, g)))
		return Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*Tensor{leaf, g}, 0)
	})
	require.NoError(t, err)
	y := Add(Sum(w), Sum(Scale(w, 2)))
	g, err := BackwardWith(Options{RetainGraph: true}, y)
	require.NoError(t, err)
	require.Equal(t, []float64{-3, -3}, numbers(t, g.Of(w)))
	require.Equal(t, []string{"grad [3 3]", "accumulated [-3 -3]"}, order)
	require.Equal(t, []float64{4, 5}, numbers(t, w), "a step in the middle of the backward")
	remove()
	remove()
	_, err = Backward(y)
	require.NoError(t, err)
	require.Len(t, order, 3)
	other := Scalar(1.0).RequireGrad()
	_, err = Backward(Exp(other))
	require.NoError(t, err)
	require.Len(t, order, 3, "a backward that does not reach the leaf does not call its hooks")
}

func TestARemovedHookIsNotCalledAgainAndTheOthersAre(t *testing.T) {
	x := Scalar(2.0).RequireGrad()
	y := Exp(x)
	var calls []int
	var removes []func()
	for i := range 3 {
		removes = append(removes, onGrad(t, y, func(*Tensor) *Tensor { calls = append(calls, i); return nil }))
	}
	run := func() {
		_, err := BackwardWith(Options{RetainGraph: true}, y)
		require.NoError(t, err)
	}
	run()
	removes[1]()
	run()
	removes[0]()
	removes[2]()
	run()
	require.Equal(t, []int{0, 1, 2, 0, 2}, calls)
}

// Doubling the gradient of a tensor in a hook is 2·t − detached t in its place.
func TestHooksInRandomGraphsChangeGradientsWhereTheyStandAndNowhereElse(t *testing.T) {
	before := device.Host().Stats().Live
	for i := range soak.Cases(60) {
		r := rng(uint64(7000 + i))
		args := []arg{normal(r, extents(r, 2)...), normal(r, 2, 3)}
		b := build(t, opCase{"random", nil, randomBody(&choices{r: r}, 2+r.IntN(10), false), nil}, device.Float64, args)
		var hooked []bool
		for range b.g.of.Nodes() {
			hooked = append(hooked, r.IntN(3) == 0)
		}
		run := func(at func(*Tensor) *Tensor) outcome {
			return runTensors(t, args, device.Float64, here, func(in []*Tensor) *Tensor {
				n := 0
				return interpret(b, in, func(op *Op, in []*Tensor) *Tensor {
					y := Run(op.Instr, in...)
					if n++; hooked[n-1] && y.RequiresGrad() {
						return at(y)
					}
					return y
				})
			})
		}
		want := run(func(y *Tensor) *Tensor { return Sub(Scale(y, 2), y.Detach()) })
		got := run(func(y *Tensor) *Tensor {
			onGrad(t, y, func(g *Tensor) *Tensor { return Add(g, g) })
			return y
		})
		requireOutcome(t, want.shape, want.y, want.grads, got, 1e-9, fmt.Sprint("case ", i))
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestAHookThatFailsEndsTheBackwardWithATypedErrorAndNothingLeaks(t *testing.T) {
	sim := device.NewSim(device.SimConfig{})
	cases := map[string]struct {
		grad func(g *Tensor) *Tensor
		done func(leaf, g *Tensor) error
		want error
		text string
	}{
		"an error":           {grad: func(*Tensor) *Tensor { return Failed(errKernel) }, want: errKernel},
		"a bad computation":  {grad: func(g *Tensor) *Tensor { return Add(g, New([]float64{1, 2, 3})) }, want: kernels.ErrOperands},
		"a panic":            {grad: func(*Tensor) *Tensor { panic("oops") }, text: "panic: oops"},
		"another shape":      {grad: func(g *Tensor) *Tensor { return Sum(g) }, want: ErrGradient, text: "float64() on cpu in place of float64(2) on cpu"},
		"another device":     {grad: func(g *Tensor) *Tensor { return To(g, sim) }, want: ErrGradient, text: "on sim:0 in place of"},
		"an error afterward": {done: func(_, _ *Tensor) error { return errKernel }, want: errKernel},
		"a panic afterward":  {done: func(_, _ *Tensor) error { panic("oops") }, text: "panic: oops"},
	}
	before := device.Host().Stats().Live
	for name, c := range cases {
		for _, leaf := range []bool{true, false} {
			a := NewArena("pass")
			x := New([]float64{1, 2})
			require.NoError(t, a.Adopt(x))
			x.RequireGrad()
			y, at := Exp(x), thisLine()
			on := y
			if leaf {
				on = x
			}
			var err error
			switch {
			case c.grad != nil:
				_, err = on.OnGrad(c.grad)
			case leaf:
				_, err = on.OnAccumulated(c.done)
			default:
				a.Free()
				continue
			}
			require.NoError(t, err)
			g, err := Backward(Sum(y))
			require.Nil(t, g)
			var he *HookError
			require.ErrorAs(t, err, &he, name)
			require.ErrorContains(t, err, c.text, name)
			if c.want != nil {
				require.ErrorIs(t, err, c.want, name)
			}
			require.Contains(t, he.Hook, "hooks_test.go:")
			if leaf {
				require.Equal(t, "the leaf float64(2)", he.Function)
			} else {
				require.Equal(t, "Exp", he.Function)
				require.Equal(t, at, Site{File: he.File, Line: he.Line})
			}
			a.Free()
		}
	}
	require.Equal(t, before, device.Host().Stats().Live)
	require.Zero(t, sim.Stats().Live)
}

func TestAHookThatCannotBeRegisteredIsRefused(t *testing.T) {
	x := Scalar(1.0).RequireGrad()
	keep := func(*Tensor) *Tensor { return nil }
	for name, c := range map[string]struct {
		t    *Tensor
		want error
	}{"no gradient": {Scalar(1.0), ErrNoGrad}, "failed": {Failed(errKernel), errKernel}, "nil": {nil, nil}} {
		_, err := c.t.OnGrad(keep)
		require.Error(t, err, name)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
		}
		require.ErrorContains(t, err, "hooks_test.go:", name)
	}
	_, err := x.OnGrad(nil)
	require.ErrorIs(t, err, ErrFunction)
	_, err = x.OnAccumulated(nil)
	require.ErrorIs(t, err, ErrFunction)
	_, err = Exp(x).OnAccumulated(func(_, _ *Tensor) error { return nil })
	require.ErrorIs(t, err, ErrNotLeaf)
	require.ErrorContains(t, err, "tensor is no leaf: it is a tensor")
}

func TestAHookOnWhatCameFromAnotherWorkerRunsBeforeTheGradientLeaves(t *testing.T) {
	x := New([]float64{1, 2})
	var left []float64
	n := NewSink("recv 1", []*Tensor{x}, []bool{true}, func(gs []*Tensor) error { left = numbers(t, gs[0]); return nil })
	onGrad(t, x, func(g *Tensor) *Tensor { return Scale(g, 5) })
	_, err := Backward(Sum(x))
	require.NoError(t, err)
	require.Equal(t, []float64{5, 5}, left)
	gys := []*Tensor{nil}
	require.NoError(t, n.RunHooks(gys), "no gradient, no call")
	require.Nil(t, gys[0])
}

func TestAHookOnAParameterRunsForEveryPassAlsoAtTheSameTime(t *testing.T) {
	w := New([]float64{1, 2}).RequireGrad()
	const passes = 8
	var inside sync.WaitGroup // every pass is in the hook at once
	inside.Add(passes)
	var after atomic.Int32
	onGrad(t, w, func(g *Tensor) *Tensor { inside.Done(); inside.Wait(); return Scale(g, 2) })
	_, err := w.OnAccumulated(func(_, _ *Tensor) error { after.Add(1); return nil })
	require.NoError(t, err)
	errs := make([]error, passes)
	var all sync.WaitGroup
	for i := range passes {
		all.Go(func() {
			a := NewArena(fmt.Sprint("pass ", i))
			defer a.Free()
			x := Scalar(float64(i))
			g, err := BackwardWith(Options{}, Sum(Mul(w, x)))
			if err == nil {
				if v, verr := Values[float64](g.Of(w)); verr != nil || !slices.Equal(v, []float64{2 * float64(i), 2 * float64(i)}) {
					err = errors.Join(verr, fmt.Errorf("pass %d: %v", i, v))
				}
			}
			errs[i] = errors.Join(a.Adopt(x), err)
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, passes, after.Load())
}

func TestMergedGradientsDoNotRunHooksAgain(t *testing.T) {
	x := Scalar(1.0).RequireGrad()
	calls := 0
	onGrad(t, x, func(g *Tensor) *Tensor { calls++; return Scale(g, 3) })
	_, err := x.OnAccumulated(func(_, _ *Tensor) error { calls++; return nil })
	require.NoError(t, err)
	var sum, part Gradients
	for range 2 {
		require.NoError(t, part.Accumulate(x, transient(t, 2)))
		require.NoError(t, sum.Merge(&part))
	}
	require.Equal(t, 4, calls)
	require.Equal(t, []float64{12}, numbers(t, sum.Of(x)))
	sum.Free()
}
