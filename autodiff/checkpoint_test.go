package autodiff

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

// checkpoint is a checkpoint of a function with one result that must succeed.
func checkpointed(t testing.TB, f func(in ...*Tensor) *Tensor, in ...*Tensor) *Tensor {
	t.Helper()
	outs := Checkpoint(func(in ...*Tensor) []*Tensor { return []*Tensor{f(in...)} }, in...)
	require.Len(t, outs, 1)
	require.NoError(t, outs[0].Err())
	return outs[0]
}

// pieces runs a random program in pieces, some of which are checkpoints, in checkpoints.
type pieces struct {
	t testing.TB
	b built
	c choices
}

// run computes the ops from..to over values by position; what is needed from outside is given or
// captured, as it falls out.
func (p *pieces) run(vals map[node]*Tensor, from, to, depth int) {
	for from < to {
		next := from + 1 + p.c.pick(to-from)
		if depth < 3 && p.c.pick(2) == 0 {
			p.checkpoint(vals, from, next, depth)
		} else {
			for _, n := range p.b.g.of.Nodes()[from:next] {
				p.op(vals, n)
			}
		}
		from = next
	}
}

func (p *pieces) op(vals map[node]*Tensor, n node) {
	if op, ok := n.Op().(*Op); ok {
		var in []*Tensor
		for _, x := range p.b.g.of.Operands(n) {
			in = append(in, vals[x])
		}
		vals[n] = Run(op.Instr, in...)
	}
}

func (p *pieces) checkpoint(vals map[node]*Tensor, from, to, depth int) {
	var given []node
	for _, n := range p.b.g.of.Nodes()[:from] { // a leaf may be captured; what was computed must be given inside another checkpoint
		if vals[n] != nil && (vals[n].Owner() != nil || p.c.pick(3) > 0) {
			given = append(given, n)
		}
	}
	var in []*Tensor
	for _, n := range given {
		in = append(in, vals[n])
	}
	start, outer := p.c, maps.Clone(vals)
	through := p.c.pick(len(given) + 1) // inputs that come out again
	outs := Checkpoint(func(in ...*Tensor) []*Tensor {
		again := &pieces{p.t, p.b, start}
		vals := maps.Clone(outer)
		for i, n := range given {
			vals[n] = in[i]
		}
		again.c.pick(len(given) + 1)
		again.run(vals, from, to, depth+1)
		p.c = again.c
		outs := slices.Clone(in[:through])
		for _, n := range p.b.g.of.Nodes()[from:to] {
			if _, ok := n.Op().(*Op); ok {
				outs = append(outs, vals[n])
			}
		}
		return outs
	}, in...)
	for _, o := range outs {
		require.NoError(p.t, o.Err())
	}
	for i, n := range given[:through] {
		vals[n] = outs[i]
	}
	outs = outs[through:]
	for _, n := range p.b.g.of.Nodes()[from:to] {
		if _, ok := n.Op().(*Op); ok {
			vals[n], outs = outs[0], outs[1:]
		}
	}
}

func TestCheckpointsOfRandomPiecesOfRandomGraphsChangeNoGradient(t *testing.T) {
	before := device.Host().Stats().Live
	for i := range soak.Cases(75) {
		r := rng(uint64(9000 + i))
		args := []arg{normal(r, extents(r, 2)...), normal(r, 2, 3), normal(r, 3)}
		b := build(t, opCase{"random", nil, randomBody(&choices{r: r}, 3+r.IntN(12), false), nil}, device.Float64, args)
		bytes := randomBytes(r, 400)
		run := func(check, retain bool) (y []float64, grads [][]float64) {
			a := NewArena("pass")
			defer a.Free()
			vals := map[node]*Tensor{}
			var in []*Tensor
			for j, n := range b.in {
				x := args[j].tensor(device.Float64).RequireGrad()
				if j == 0 {
					require.NoError(t, a.Adopt(x))
				}
				in, vals[n] = append(in, x), x
			}
			p := &pieces{t, b, choices{bytes: slices.Clone(bytes)}}
			if check {
				p.run(vals, 0, len(b.g.of.Nodes()), 0)
			} else {
				for _, n := range b.g.of.Nodes() {
					p.op(vals, n)
				}
			}
			g, err := BackwardWith(Options{RetainGraph: retain}, vals[b.y])
			require.NoError(t, err, "case %d", i)
			if retain {
				g, err = BackwardWith(Options{Anomaly: true}, vals[b.y])
				require.NoError(t, err, "case %d", i)
				_, err = Backward(vals[b.y])
				require.ErrorIs(t, err, ErrGraphFreed)
			}
			for _, x := range in {
				d := g.Of(x)
				if d == nil {
					grads = append(grads, nil)
					continue
				}
				grads = append(grads, numbers(t, d))
			}
			return numbers(t, vals[b.y]), grads
		}
		wantY, want := run(false, false)
		for _, retain := range []bool{false, true} {
			y, got := run(true, retain)
			require.Equal(t, wantY, y)
			for j := range want {
				require.Equal(t, want[j] == nil, got[j] == nil)
				requireClose(t, want[j], got[j], 1e-12, fmt.Sprintf("case %d, gradient %d", i, j))
			}
		}
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestACheckpointHoldsItsInputsAndResultsAndNothingInBetween(t *testing.T) {
	const n, deep = 64, 20
	w := normal(rng(1), n, n).tensor(device.Float64).RequireGrad()
	chain := func(in ...*Tensor) *Tensor {
		h := in[0]
		for range deep {
			h = Tanh(Mul(h, w))
		}
		return h
	}
	run := func(f func(x *Tensor) *Tensor) (held, live, peak int64, g []float64) {
		a := NewArena("pass")
		defer a.Free()
		x := owned(t, a, device.Host(), n, n)
		before := device.Host().Stats().LiveBytes
		y := f(x)
		held, live = a.Bytes(), device.Host().Stats().LiveBytes-before
		onGrad(t, y, func(*Tensor) *Tensor { peak = 0; return nil })
		grads, err := Backward(Sum(y))
		require.NoError(t, err)
		require.LessOrEqual(t, a.Bytes(), held+2*n*n*8, "the second run is freed with its node")
		return held, live, peak, numbers(t, grads.Of(w))
	}
	plainHeld, plainLive, _, want := run(func(x *Tensor) *Tensor { return chain(x) })
	held, live, _, got := run(func(x *Tensor) *Tensor { return checkpointed(t, chain, x) })
	require.Equal(t, want, got)
	const one = n * n * 8
	require.EqualValues(t, (1+2*deep)*one, plainHeld)
	require.EqualValues(t, 2*one, held)
	require.EqualValues(t, one, live, "only the result is new")
	require.GreaterOrEqual(t, plainLive, int64(2*deep*one))
}

func TestResultsOfACheckpointMayBeUnusedInputsOrFromOutside(t *testing.T) {
	x, w, out := Scalar(2.0).RequireGrad(), Scalar(3.0).RequireGrad(), Exp(Scalar(1.0).RequireGrad())
	plain := Scalar(7.0)
	outs := Checkpoint(func(in ...*Tensor) []*Tensor {
		return []*Tensor{Mul(in[0], w), Exp(in[0]), in[0], out, in[1], plain, Mul(in[1], in[1])}
	}, x, plain)
	require.Len(t, outs, 7)
	require.Same(t, out, outs[3], "what came from outside is handed on")
	require.Same(t, plain, outs[5])
	var has []bool
	for _, o := range outs {
		require.NoError(t, o.Err())
		has = append(has, o.RequiresGrad())
	}
	require.Equal(t, []bool{true, true, true, true, false, false, false}, has)
	g, err := Backward(Mul(outs[0], outs[2]), outs[3])
	require.NoError(t, err)
	require.Equal(t, []float64{2 * 2 * 3}, numbers(t, g.Of(x)))
	require.Equal(t, []float64{4}, numbers(t, g.Of(w)))
	require.Equal(t, []float64{49}, numbers(t, outs[6]))
}

func TestACheckpointWithoutGradientsKeepsNothing(t *testing.T) {
	a := NewArena("pass")
	defer a.Free()
	calls := 0
	outs := Checkpoint(func(in ...*Tensor) []*Tensor { calls++; return []*Tensor{Exp(in[0])} }, owned(t, a, device.Host(), 2))
	require.False(t, outs[0].RequiresGrad())
	require.Same(t, a, outs[0].Owner())
	require.True(t, outs[0].IsLeaf())
	require.Empty(t, Checkpoint(func(...*Tensor) []*Tensor { return nil }))
	require.Equal(t, 1, calls)
}

func TestASecondRunReadsTheValuesOfTheFirst(t *testing.T) {
	x, w, given := New([]float64{1, 2}).RequireGrad(), New([]float64{3, 4}).RequireGrad(), New([]float64{5, 6}).RequireGrad()
	y := checkpointed(t, func(in ...*Tensor) *Tensor {
		return checkpointed(t, func(in ...*Tensor) *Tensor { return Mul(Mul(in[0], w), in[1]) }, in...)
	}, x, given)
	for _, p := range []*Tensor{x, w, given} {
		require.NoError(t, Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*Tensor{p, New([]float64{1, 1})}, 0))
	}
	require.Equal(t, []float64{2, 3}, numbers(t, w))
	g, err := Backward(Sum(y))
	require.NoError(t, err)
	require.Equal(t, []float64{15, 24}, numbers(t, g.Of(x)))
	require.Equal(t, []float64{5, 12}, numbers(t, g.Of(w)))
	require.Equal(t, []float64{3, 8}, numbers(t, g.Of(given)))
}

func TestAFunctionThatDoesNotRepeatItselfIsATypedErrorThatNamesTheCall(t *testing.T) {
	sim := device.NewSim(device.SimConfig{})
	w, v := New([]float64{1, 2}).RequireGrad(), New([]float64{1, 2}).RequireGrad()
	second := func(f, g func(x *Tensor) []*Tensor) func(in ...*Tensor) []*Tensor {
		n := 0
		return func(in ...*Tensor) []*Tensor {
			if n++; n == 1 {
				return f(in[0])
			}
			return g(in[0])
		}
	}
	exp := func(x *Tensor) []*Tensor { return []*Tensor{Exp(x)} }
	cases := map[string]struct {
		first, then func(x *Tensor) []*Tensor
		want        error
		text        string
	}{
		"another shape":       {exp, func(x *Tensor) []*Tensor { return []*Tensor{Sum(x)} }, ErrRecompute, "result 0 was float64(2) on cpu, and is now"},
		"another device":      {exp, func(x *Tensor) []*Tensor { return []*Tensor{To(x, sim)} }, ErrRecompute, "result 0"},
		"no history":          {exp, func(x *Tensor) []*Tensor { return []*Tensor{Exp(x.Detach())} }, ErrRecompute, "result 0"},
		"more results":        {exp, func(x *Tensor) []*Tensor { return []*Tensor{Exp(x), x} }, ErrRecompute, "it gave 1 results, and now 2"},
		"something else read": {func(x *Tensor) []*Tensor { return []*Tensor{Mul(x, w)} }, func(x *Tensor) []*Tensor { return []*Tensor{Mul(x, v)} }, ErrRecompute, "the leaf float64(2)"},
		"less read":           {func(x *Tensor) []*Tensor { return []*Tensor{Mul(x, w)} }, exp, ErrRecompute, "it read 1 tensors"},
		"a leaf made inside": {func(x *Tensor) []*Tensor { return []*Tensor{Mul(x, New([]float64{1, 2}).RequireGrad())} },
			func(x *Tensor) []*Tensor { return []*Tensor{Mul(x, New([]float64{1, 2}).RequireGrad())} }, ErrRecompute, "the leaf"},
		"an error": {exp, func(*Tensor) []*Tensor { return []*Tensor{Failed(errKernel)} }, errKernel, ""},
		"a panic":  {exp, func(*Tensor) []*Tensor { panic("oops") }, ErrFunction, "panic in checkpoint: oops"},
	}
	before := device.Host().Stats().Live
	for name, c := range cases {
		a := NewArena("pass")
		x := New([]float64{1, 2})
		require.NoError(t, a.Adopt(x))
		x.RequireGrad()
		outs, at := Checkpoint(second(c.first, c.then), x), thisLine()
		require.NoError(t, outs[0].Err(), name)
		_, err := Backward(Sum(outs[0]))
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.text, name)
		require.ErrorContains(t, err, fmt.Sprintf("backward of checkpoint, called at %v: ", at), name)
		var ne *NodeError
		require.ErrorAs(t, err, &ne)
		a.Free()
	}
	require.Equal(t, before, device.Host().Stats().Live)
	require.Zero(t, sim.Stats().Live)
}

func TestWhatGoesWrongInTheFirstRunIsCarriedByTheResult(t *testing.T) {
	before := device.Host().Stats().Live
	a, b := NewPassArena("1", nil), NewPassArena("2", nil)
	x := owned(t, a, device.Host(), 2).RequireGrad()
	other := owned(t, b, device.Host(), 2)
	for name, c := range map[string]struct {
		f    func(in ...*Tensor) []*Tensor
		want error
	}{
		"an error":                       {func(...*Tensor) []*Tensor { return []*Tensor{Failed(errKernel)} }, errKernel},
		"a panic":                        {func(...*Tensor) []*Tensor { panic("oops") }, ErrFunction},
		"a nil result":                   {func(...*Tensor) []*Tensor { return []*Tensor{nil} }, nil},
		"two passes":                     {func(in ...*Tensor) []*Tensor { return []*Tensor{Mul(in[0], other)} }, ErrMixedPasses},
		"two passes, one captured first": {func(in ...*Tensor) []*Tensor { return []*Tensor{Mul(other, in[0])} }, ErrMixedPasses},
	} {
		outs := Checkpoint(c.f, x)
		require.Len(t, outs, 1, name)
		require.Error(t, outs[0].Err(), name)
		require.ErrorContains(t, outs[0].Err(), "checkpoint_test.go:", name)
		if c.want != nil {
			require.ErrorIs(t, outs[0].Err(), c.want, name)
		}
	}
	require.ErrorIs(t, Checkpoint(func(in ...*Tensor) []*Tensor { return in }, x, other)[0].Err(), ErrMixedPasses)
	require.Error(t, Checkpoint(func(in ...*Tensor) []*Tensor { return in }, nil)[0].Err())
	a.Free()
	b.Free()
	require.ErrorIs(t, Checkpoint(func(in ...*Tensor) []*Tensor { return in }, x)[0].Err(), ErrFreed)
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestACheckpointOfNobodysTensorsTakesTheArenaOfWhatItReads(t *testing.T) {
	a, b := NewPassArena("1", nil), NewPassArena("2", nil)
	defer a.Free()
	defer b.Free()
	w, x := Scalar(2.0).RequireGrad(), owned(t, a, device.Host())
	y := checkpointed(t, func(in ...*Tensor) *Tensor { return Mul(in[0], x) }, w)
	require.Same(t, a, y.Owner())
	outs := Checkpoint(func(in ...*Tensor) []*Tensor {
		return []*Tensor{Mul(Mul(in[0], x), Mul(in[0], owned(t, b, device.Host())))}
	}, w)
	require.ErrorIs(t, outs[0].Err(), ErrMixedPasses)
	outs = Checkpoint(func(in ...*Tensor) []*Tensor {
		h := Mul(in[0], x)
		return Checkpoint(func(in ...*Tensor) []*Tensor { return []*Tensor{Mul(in[0], h)} }, w)
	}, w)
	require.ErrorIs(t, outs[0].Err(), ErrMixedPasses)
	require.ErrorContains(t, outs[0].Err(), "give it what it reads")
}

func TestHooksAndAnomaliesInsideACheckpointAreThoseOfTheSecondRun(t *testing.T) {
	x, w := New([]float64{1, 0}).RequireGrad(), New([]float64{1, 1}).RequireGrad()
	var seen []string
	see := func(name string, y *Tensor) *Tensor {
		onGrad(t, y, func(g *Tensor) *Tensor { seen = append(seen, fmt.Sprint(name, numbers(t, g))); return Scale(g, 2) })
		return y
	}
	see("w", w)
	y := checkpointed(t, func(in ...*Tensor) *Tensor { return see("inner", Mul(see("input", in[0]), w)) }, x)
	see("result", y)
	g, err := Backward(Sum(y))
	require.NoError(t, err)
	require.Equal(t, []string{"result[1 1]", "inner[2 2]", "input[4 4]", "w[4 0]"}, seen)
	require.Equal(t, []float64{8, 8}, numbers(t, g.Of(x)))
	require.Equal(t, []float64{8, 0}, numbers(t, g.Of(w)))

	var at Site
	y = checkpointed(t, func(in ...*Tensor) *Tensor { l := Log(in[0]); at = thisLine(); return l }, x)
	_, err = BackwardWith(Options{Anomaly: true}, Sum(y))
	var ae *AnomalyError
	require.ErrorAs(t, err, &ae)
	require.Equal(t, AnomalyError{Function: "Log", File: at.File, Line: at.Line, What: "infinity"}, *ae)
}

func TestWhatAFunctionComputesFromCapturedTensorsAloneGetsItsGradient(t *testing.T) {
	x, w := New([]float64{1, 2, 3, 4}, 2, 2).RequireGrad(), New([]float64{5, 6, 7, 8}, 2, 2).RequireGrad()
	h := Exp(Scale(w, 0.1)) // captured, with a history of its own
	f := func(in ...*Tensor) *Tensor { return Mul(MatMul(in[0], Transpose(Neg(w))), h) }
	want, err := BackwardWith(Options{RetainGraph: true}, Sum(f(x)))
	require.NoError(t, err)
	got, err := Backward(Sum(checkpointed(t, f, x)))
	require.NoError(t, err)
	for _, p := range []*Tensor{x, w} {
		require.Equal(t, numbers(t, want.Of(p)), numbers(t, got.Of(p)))
	}
}

func TestATensorThatEscapesItsCheckpointIsFreed(t *testing.T) {
	var kept *Tensor
	y := checkpointed(t, func(in ...*Tensor) *Tensor { kept = Exp(in[0]); return Neg(kept) }, Scalar(1.0).RequireGrad())
	require.NoError(t, y.Err())
	_, err := kept.Item()
	require.ErrorIs(t, err, ErrFreed)
	require.ErrorContains(t, err, "a checkpoint of checkpoint")
}

func TestCheckpointsRunBackwardAtTheSameTimeAndWhileTheirPassIsFreed(t *testing.T) {
	before := device.Host().Stats().Live
	w := normal(rng(1), 8, 8).tensor(device.Float64).RequireGrad()
	for range soak.Cases(20) {
		a := NewArena("pass")
		x := owned(t, a, device.Host(), 8, 8)
		y := Sum(checkpointed(t, func(in ...*Tensor) *Tensor { return Tanh(MatMul(Tanh(MatMul(in[0], w)), w)) }, x))
		var all sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			all.Go(func() { _, errs[i] = BackwardWith(Options{RetainGraph: true}, y) })
		}
		all.Go(a.Free)
		all.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, ErrFreed) {
				require.ErrorIs(t, err, ErrGraphFreed)
			}
		}
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestEveryAllocationOfACheckpointMayFailAndNothingLeaks(t *testing.T) {
	host := device.Host().Stats().Live
	ran := false
	for n := 1; !ran; n++ {
		sim := device.NewSim(device.SimConfig{})
		s := &scarce{Launcher: sim, fails: n}
		a := NewArena("pass")
		x, w := To(New([]float64{1, 2}), s), To(New([]float64{3, 4}), s)
		var err error
		if x.Err() == nil && w.Err() == nil {
			err = errors.Join(a.Adopt(x), a.Adopt(w))
			x.RequireGrad()
			w.RequireGrad()
			y := Checkpoint(func(in ...*Tensor) []*Tensor {
				return Checkpoint(func(in ...*Tensor) []*Tensor { return []*Tensor{Tanh(Mul(in[0], w)), Exp(in[0])} }, Neg(in[0]))
			}, x)
			err = errors.Join(err, y[0].Err())
			if err == nil {
				_, err = Backward(Sum(y[0]), Sum(y[1]))
			}
		} else {
			err = errors.Join(x.Err(), w.Err())
		}
		if ran = s.count < n; !ran {
			require.ErrorIs(t, err, device.ErrMemory, "allocation %d", n)
		} else {
			require.NoError(t, err)
		}
		for _, p := range []*Tensor{x, w} {
			if p.Owner() == nil {
				p.free()
			}
		}
		a.Free()
		require.Zero(t, sim.Stats().Live, "allocation %d", n)
	}
	require.Equal(t, host, device.Host().Stats().Live)
}
