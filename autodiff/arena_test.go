package autodiff

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// owned is a tensor of ones in an arena.
func owned(t testing.TB, a *Arena, dev device.Device, shape ...int) *Tensor {
	t.Helper()
	typ := kernels.Type{Dtype: device.Float64, Shape: device.Shape(shape).Clone()}
	b, err := fill(dev, typ, 1)
	require.NoError(t, err)
	return Wrap(typ, b, a)
}

func TestResultsBelongToTheArenaOfTheirInputsAndAreFreedWithIt(t *testing.T) {
	before := device.Host().Stats()
	a := NewPassArena("1", nil)
	w := normal(rng(1), 3, 3).tensor(device.Float64).RequireGrad()
	require.Nil(t, w.Owner())
	x := owned(t, a, device.Host(), 2, 3)
	y := MatMul(x, w)
	require.Same(t, a, y.Owner())
	require.EqualValues(t, 2*2*3*8, a.Bytes())
	z := Reshape(GELU(y), 6)
	loss := CrossEntropy(y, New([]int32{0, 2}))
	require.Same(t, a, loss.Detach().Owner())
	g, err := Backward(Add(loss, Sum(z)))
	require.NoError(t, err)
	require.Same(t, a, g.Of(w).Owner())
	require.Greater(t, device.Host().Stats().Live, before.Live)
	a.Free()
	a.Free()
	require.True(t, a.isFreed())
	require.Zero(t, a.Bytes())
	after := device.Host().Stats()
	require.Equal(t, before.Live, after.Live)
	require.Equal(t, before.LiveBytes, after.LiveBytes)

	_, err = Values[float64](g.Of(w))
	require.ErrorIs(t, err, ErrFreed)
	require.ErrorContains(t, err, "belonged to pass 1")
	require.Regexp(t, `^\S*arena_test.go:\d+: Values: tensor was freed: `, err.Error())
	require.Regexp(t, `^\S*arena_test.go:\d+: Exp: operand 0: tensor was freed: `, Exp(y).Err().Error())
	require.Regexp(t, `^\S*arena_test.go:\d+: Detach: tensor was freed: `, y.Detach().Err().Error())
	require.Regexp(t, `^\S*arena_test.go:\d+: Backward: .*tensor was freed: `, backwardOf(y).Error())
	for name, err := range map[string]error{
		"an op on what was freed": Exp(y).Err(), "moving it": To(y, device.NewSim(device.SimConfig{})).Err(), "detaching it": y.Detach().Err(),
		"giving to the arena": a.Adopt(Scalar(1.0)), "making in the arena": owned(t, a, device.Host(), 2).Err(),
	} {
		require.ErrorIs(t, err, ErrFreed, name)
		require.ErrorContains(t, err, "arena_test.go:", name)
	}
	require.Equal(t, before.Live, device.Host().Stats().Live)
	require.Len(t, numbers(t, w), 9, "nobody's tensor lives on")
}

func TestTwoArenasDoNotMix(t *testing.T) {
	a, b := NewPassArena("1", nil), NewPassArena("2", nil)
	defer a.Free()
	defer b.Free()
	x, y := owned(t, a, device.Host(), 2), owned(t, b, device.Host(), 2)
	err := Add(x, y).Err()
	require.ErrorIs(t, err, ErrMixedPasses)
	require.ErrorContains(t, err, "tensors of two passes meet: float64(2) of pass 1 meets one of pass 2")
	require.ErrorIs(t, b.Adopt(x), ErrMixedPasses)
	require.NoError(t, a.Adopt(x), "it is there already")
	require.NoError(t, Add(x, Scalar(1.0)).Err())
	require.ErrorContains(t, b.Adopt(nil), "nil tensor")
	require.ErrorIs(t, b.Adopt(Failed(errKernel)), errKernel)
	require.ErrorIs(t, Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*Tensor{x, y}, 0), ErrMixedPasses)
}

func TestATensorOfAnArenaThatMeetsOthersIsToldFromTwoPasses(t *testing.T) {
	step, other, pass := NewArena("step"), NewArena("other"), NewPassArena("0.1", nil)
	defer step.Free()
	defer other.Free()
	defer pass.Free()
	x, y, z := owned(t, step, device.Host(), 2), owned(t, other, device.Host(), 2), owned(t, pass, device.Host(), 2)
	for mend, err := range map[string]error{
		"use one arena for both": Add(x, y).Err(), "from inputs given to it with ctx.Own": Add(z, y).Err(),
		"do not leave their worker": pass.Sends(x), "copy of one": step.Accepts("op", z),
	} {
		require.ErrorIs(t, err, ErrMixedArenas)
		require.NotErrorIs(t, err, ErrMixedPasses)
		require.ErrorContains(t, err, mend)
		require.Regexp(t, `arena "(step|other)" \(made at [^ ]*arena_test.go:\d+\)`, err.Error())
		require.NotContains(t, err.Error(), "two passes")
		var e *OwnerError
		require.ErrorAs(t, err, &e)
	}
	require.NoError(t, pass.Sends(z, nil, Scalar(1.0)))
}

func TestACopyHasNoHistoryAndOutlivesTheArenaOfItsTensor(t *testing.T) {
	for _, dev := range []device.Device{device.Host(), device.NewSim(device.SimConfig{})} {
		a := NewArena("step")
		table := owned(t, a, dev, 5, 2).RequireGrad()
		big := owned(t, a, dev, 100, 200)
		g, err := Backward(Sum(EmbeddingSparse(table, To(New([]int64{1, 3}), dev))))
		require.NoError(t, err)
		for name, x := range map[string]*Tensor{"small": Sum(Mul(big, big)), "large": Mul(big, big), "sparse": g.Of(table), "leaf": table} {
			want, sparse := numbers(t, x), x.IsSparse()
			c := x.Copy()
			require.NoError(t, c.Err(), name)
			require.Nil(t, c.Owner(), name)
			require.False(t, c.RequiresGrad(), name)
			require.Equal(t, sparse, c.IsSparse(), name)
			defer func() { require.Equal(t, want, numbers(t, c), name) }() // when the arena is freed
		}
		x := Exp(big)
		a.Free()
		require.ErrorIs(t, x.Copy().Err(), ErrFreed)
		require.ErrorContains(t, x.Copy().Err(), "arena_test.go:")
	}
	require.Error(t, (*Tensor)(nil).Copy().Err())
	require.ErrorIs(t, Failed(errKernel).Copy().Err(), errKernel)
}

func TestWrapTakesTheReferenceAlsoWhenItRefuses(t *testing.T) {
	before := device.Host().Stats().Live
	b, err := device.Host().Alloc(12)
	require.NoError(t, err)
	bad := Wrap(kernels.Type{Dtype: device.Float64, Shape: device.Shape{2}}, b, nil)
	require.ErrorIs(t, bad.Err(), device.ErrBounds)
	require.Equal(t, before, device.Host().Stats().Live)
}

// trainStep is a forward and a backward with everything in it, all in the arena.
func trainStep(dev device.Device, x, w *Tensor) error {
	y := network.Call(x, w)
	z := Add(Sum(GELU(y)), Mean(Softmax(Concat(0, y, To(To(y, device.Host()), dev)), -1)))
	g, err := Backward(Add(z, Sum(Mul(y, y))))
	if err != nil {
		return err
	}
	return errors.Join(g.Of(x).Err(), g.Of(w).Err())
}

var network = Define("network", func(g *Graph, x, w node) node {
	return g.Tanh(g.Apply(kernels.Normalize{Eps: 1e-5}, g.MatMul(g.Exp(x), w)))
})

// scarce is a device that refuses one allocation.
type scarce struct {
	device.Launcher
	mu    sync.Mutex
	count int
	fails int
}

func (s *scarce) Alloc(n int) (*device.Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count++; s.count == s.fails {
		return nil, &device.Error{Device: s.ID(), Op: "alloc", Err: device.ErrMemory}
	}
	return s.Launcher.Alloc(n)
}

func TestEveryAllocationMayFailAndNothingLeaks(t *testing.T) {
	host := device.Host().Stats().Live
	tried := 0
	for fails := 1; ; fails++ {
		inner := device.NewSim(device.SimConfig{})
		dev := &scarce{Launcher: inner, fails: -1}
		a := NewArena("pass")
		x, w := owned(t, a, inner, 4, 4), owned(t, a, inner, 4, 4)
		for _, v := range []*Tensor{x, w} {
			v.dev = dev // results are computed, and allocated, here
			v.RequireGrad()
		}
		dev.fails, dev.count = fails, 0
		err := stepOn(dev, x, w)
		a.Free()
		require.Zero(t, inner.Stats().Live, "allocation %d", fails)
		require.Equal(t, host, device.Host().Stats().Live, "allocation %d", fails)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, device.ErrMemory)
		tried++
	}
	require.Greater(t, tried, 5)
}

// stepOn is a function of many ops, forward and backward, whose every allocation is dev's.
func stepOn(dev device.Device, x, w *Tensor) error {
	c, err := network.programs(dev, []*Tensor{x, w}, true)
	if err != nil {
		return err
	}
	outs := make([]*Tensor, c.NumResults())
	err = call(c, dev, x.owner, []*Tensor{x, w}, outs)
	if err != nil {
		return err
	}
	one, err := outs[0].copyTo(dev)
	if err != nil {
		return err
	}
	one.dev = dev
	gys := []*Tensor{one}
	defer freeAll(gys)
	ds, err := outs[0].edge.Node.PullWith(gys, Pull{})
	freeAll(ds)
	return err
}

func TestADeviceThatIsFullAtAnyMomentLeavesNothingBehind(t *testing.T) {
	host := device.Host().Stats().Live
	done := false
	for size := int64(64); !done; size += 64 {
		sim := device.NewSim(device.SimConfig{Bytes: size})
		a := NewArena("pass")
		x, w := owned(t, a, device.Host(), 4, 4).RequireGrad(), owned(t, a, device.Host(), 4, 4).RequireGrad()
		err := trainStep(sim, To(x, sim), To(w, sim))
		done = err == nil || !errors.Is(err, device.ErrMemory)
		a.Free()
		require.Zero(t, sim.Stats().Live, "%d bytes", size)
		require.Equal(t, host, device.Host().Stats().Live, "%d bytes", size)
		require.Less(t, size, int64(1<<16))
	}
}

func TestABackwardThatFailsHalfWayFreesEveryGradient(t *testing.T) {
	host := device.Host().Stats().Live
	a := NewArena("pass")
	x, w := owned(t, a, device.Host(), 4, 4).RequireGrad(), owned(t, a, device.Host(), 4, 4).RequireGrad()
	y := MatMul(x, w)
	z := Exp(y)
	early := owned(t, a, device.Host(), 2).RequireGrad() // it has its gradient when the failure comes
	loss := Add(Sum(early), Add(Sum(Mul(z, Tanh(y))), Sum(x)))
	y.edge.Node.free() // what an earlier backward would have done
	_, err := Backward(loss)
	require.ErrorIs(t, err, ErrGraphFreed)
	a.Free()
	require.Equal(t, host, device.Host().Stats().Live)
}

func TestFreeingAnArenaUnderComputationsIsSafe(t *testing.T) {
	host := device.Host().Stats().Live
	for range 15 {
		a := NewArena("pass")
		x, w := owned(t, a, device.Host(), 4, 4).RequireGrad(), owned(t, a, device.Host(), 4, 4).RequireGrad()
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				<-start
				for {
					if err := trainStep(device.Host(), x, w); err != nil {
						if !errors.Is(err, ErrFreed) && !errors.Is(err, ErrGraphFreed) {
							t.Errorf("unexpected: %v", err)
						}
						return
					}
				}
			})
		}
		close(start)
		if err := trainStep(device.Host(), x, w); err != nil {
			t.Error(err)
		}
		a.Free()
		wg.Wait()
		require.Equal(t, host, device.Host().Stats().Live)
	}
}

func TestNobodysValuesAreLeftToTheCollector(t *testing.T) {
	host := device.Host().Stats().Live
	x, w := normal(rng(1), 4, 4).tensor(device.Float64), normal(rng(2), 4, 4).tensor(device.Float64).RequireGrad()
	y := Sum(network.Call(x, w)) // keeps values between its ops
	require.Equal(t, host, device.Host().Stats().Live)
	g, err := Backward(y)
	require.NoError(t, err)
	require.Nil(t, g.Of(w).Owner())
	require.Equal(t, host, device.Host().Stats().Live)
}

func TestACallKeepsOnlyWhatItsBackwardReads(t *testing.T) {
	x, w := New([]float64{1, 2}), New([]float64{3, 4}).RequireGrad()
	saved := func(y *Tensor) (n int) { return len(y.edge.Node.keeps()) }
	require.Equal(t, 1, saved(Mul(x, w)), "x, for the gradient of w")
	require.Equal(t, 2, saved(Mul(another(w), w)))
	require.Zero(t, saved(Add(x, w)))
	require.Equal(t, 1, saved(Exp(w)), "its result")
	require.Nil(t, Mul(x, x).edge.Node, "nobody wants a gradient")
}

// another is another parameter with the value of w.
func another(w *Tensor) *Tensor { return w.Detach().RequireGrad() }

func backwardOf(y *Tensor) error {
	_, err := Backward(y)
	return err
}
