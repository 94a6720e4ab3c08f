package optim_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// spread is the golden problem with its parameters on several workers.
type spread struct {
	w      *rpc.Worker
	params []optim.Param
}

func newSpread(t *testing.T, ws []*rpc.Worker, start [][]float64) *spread {
	t.Helper()
	s := &spread{w: ws[0]}
	for j, v := range start {
		p := makeParam.Remote(ws[0].Context(t.Context()), ws[(j+1)%len(ws)].Name(), v)
		t.Cleanup(p.Release)
		s.params = append(s.params, p)
	}
	return s
}

func (s *spread) values(t *testing.T) (all [][]float64) {
	t.Helper()
	for _, p := range s.params {
		x, err := p.ToHere(s.w.Context(t.Context()))
		require.NoError(t, err)
		v, err := autodiff.Values[float64](x)
		require.NoError(t, err)
		all = append(all, v)
	}
	return all
}

// pass makes the gradients of step n of the golden problem, and calls do in the same pass.
func (s *spread) pass(t *testing.T, n int, do func(c context.Context) error) error {
	t.Helper()
	return s.w.Pass(s.w.Context(t.Context()), func(c context.Context) error {
		var losses []*autodiff.Tensor
		for j, v := range s.values(t) {
			if g := gradientAt(v, j, n); g != nil {
				p, err := s.params[j].ToHere(c)
				require.NoError(t, err)
				losses = append(losses, autodiff.Sum(autodiff.Mul(p, autodiff.New(g))))
			}
		}
		require.NoError(t, ctx.Backward(c, losses...))
		return do(c)
	})
}

// PyTorch's test_dist_optim.
func TestEveryRuleOnTwoOwnersChangesTheWeightsAndEqualsLocalTraining(t *testing.T) {
	ws, g := world(t, 2), readGolden(t)
	for name, rule := range torchs {
		t.Run(name, func(t *testing.T) {
			s, here := newSpread(t, ws, g.Start), newProblem[float64](g.Start)
			dist, err := optim.NewDistributed(ws[0].Context(t.Context()), rule, s.params...)
			require.NoError(t, err)
			defer dist.Release()
			local, err := optim.New(rule, here.params...)
			require.NoError(t, err)
			for n := 1; n <= 10; n++ {
				require.NoError(t, s.pass(t, n, dist.Step))
				require.NoError(t, local.Step(here.gradients(t, n)))
				require.Equal(t, here.values(t), s.values(t))
				if want := g.Optimizers[name].At[strconv.Itoa(n)]; want != nil {
					here.close(t, want, 1e-9)
				}
			}
			require.NotEqual(t, g.Start, s.values(t))
		})
	}
}

// PyTorch's test_dist_optim_none_grads. There, a parameter that had a gradient in an earlier pass
// is stepped again by that.
func TestAParameterWithoutAGradientInThePassStaysUnchangedOnItsOwner(t *testing.T) {
	ws := world(t, 2)
	for name, rule := range torchs {
		s := newSpread(t, ws, [][]float64{{1, 2}, {3}, {4, 5}, {6}}) // two on each
		dist, err := optim.NewDistributedGroups(ws[0].Context(t.Context()), optim.Named(rule, named(s.params)))
		require.NoError(t, err)
		require.NoError(t, s.pass(t, 5, dist.Step), "all have a gradient")
		before := s.values(t)
		state, err := dist.State(ws[0].Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, map[string]int{"a.0": 1, "a.1": 1, "a.2": 1, "a.3": 1}, state.Meta.Groups[0].Steps)
		require.NoError(t, s.pass(t, 3, dist.Step), "parameters 1 and 2 have none")
		after := s.values(t)
		require.Equal(t, before[1:3], after[1:3], name)
		require.NotEqual(t, before[0], after[0])
		state, err = dist.State(ws[0].Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, map[string]int{"a.0": 2, "a.1": 1, "a.2": 1, "a.3": 2}, state.Meta.Groups[0].Steps)
		dist.Release()
	}
}

// PyTorch's test_dist_optim_exception.
func TestAStepThatFailsOnOwnersIsAnErrorRunningTheOptimizerThatNamesThemAll(t *testing.T) {
	ws, g := world(t, 3), readGolden(t)
	s := newSpread(t, ws, g.Start)
	dist, err := optim.NewDistributed(ws[0].Context(t.Context()), optim.Adam{}, s.params...)
	require.NoError(t, err)
	defer dist.Release()
	dist.SetSchedule(func(int) float64 { return math.NaN() })
	err = s.pass(t, 5, dist.Step)
	require.ErrorIs(t, err, optim.ErrStep)
	for i := range 3 {
		require.ErrorContains(t, err, fmt.Sprintf("error running optimizer on worker%d", i))
	}
	require.ErrorContains(t, err, "learning rate NaN")
	require.Equal(t, g.Start, s.values(t))
	dist.SetSchedule(nil)
	require.NoError(t, s.pass(t, 5, dist.Step), "it goes on")
	require.ErrorIs(t, dist.StepScaled(ws[0].Context(t.Context()), 1), ctx.ErrNoPass)
	require.ErrorIs(t, s.pass(t, 5, func(c context.Context) error { return dist.StepScaled(c, -1) }), optim.ErrStep)
}

// PyTorch's test_dist_optim_exception_on_constructor.
func TestAnOptimizerThatCannotBeMadeOnOwnersIsAnErrorCreatingItThatNamesThemAll(t *testing.T) {
	ws := world(t, 3)
	c := ws[0].Context(t.Context())
	good := makeParam.Remote(c, "worker2", []float64{1})
	bad := []optim.Param{makeFrozen.Remote(c, "worker0", []float64{1}), makeFrozen.Remote(c, "worker1", []float64{1})}
	_, err := optim.NewDistributed(c, optim.SGD{LR: 1}, good, bad[0], bad[1])
	require.ErrorContains(t, err, "error creating optimizer on worker0")
	require.ErrorContains(t, err, "error creating optimizer on worker1")
	require.NotContains(t, err.Error(), "on worker2")
	require.ErrorIs(t, err, optim.ErrParameters)
	good.Release()
	bad[0].Release()
	bad[1].Release()
	require.Eventually(t, func() bool { return ws[2].Owned() == 0 }, 10*time.Second, time.Millisecond, "what was made is dropped again")
}

func TestAnOwnerThatIsGoneFailsTheStepAndTheOthersAreSteppedStill(t *testing.T) {
	net := rpctest.Net()
	ws := rpctest.World(t, net, 3, functions()...)
	s := newSpread(t, ws, [][]float64{{1}, {1}, {1}})
	dist, err := optim.NewDistributed(ws[0].Context(t.Context()), optim.SGD{LR: 1}, s.params...)
	require.NoError(t, err)
	require.ErrorContains(t, s.pass(t, 5, func(c context.Context) error {
		require.NoError(t, ws[2].Close())
		return dist.Step(c)
	}), "error running optimizer on worker2")
	require.NotEqual(t, 1.0, s.at(t, 0), "worker1's was stepped")
	require.NotEqual(t, 1.0, s.at(t, 2), "worker0's was stepped")
}

// at is the value of a parameter with one number.
func (s *spread) at(t *testing.T, j int) float64 {
	t.Helper()
	x, err := s.params[j].ToHere(s.w.Context(t.Context()))
	require.NoError(t, err)
	return number(t, x)
}

func TestAStepIsOneCallPerOwnerAndAllOwnersAtOnce(t *testing.T) {
	const delay = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(delay), 5, functions()...)
		s := newSpread(t, ws, [][]float64{{1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}})
		dist, err := optim.NewDistributed(ws[0].Context(t.Context()), optim.Adam{}, s.params...)
		require.NoError(t, err)
		defer dist.Release()
		require.NoError(t, s.pass(t, 5, func(c context.Context) error {
			for rounds, step := range []func() error{nil, func() error { return dist.Step(c) }, func() error { _, err := dist.StepClipped(c, 1); return err }} {
				if step != nil {
					start := time.Now()
					require.NoError(t, step())
					require.Equal(t, time.Duration(2*rounds)*delay, time.Since(start), "%d rounds", rounds)
				}
			}
			return nil
		}))
	})
}

func TestTheNormOverAllOwnersAndTheClippedStepsAreThoseOfOneProcess(t *testing.T) {
	ws, g := world(t, 3), readGolden(t)
	for _, limit := range []float64{0.5, 100} {
		s := newSpread(t, ws, g.Start)
		dist, err := optim.NewDistributed(ws[0].Context(t.Context()), optim.SGD{LR: 0.05, Momentum: 0.9}, s.params...)
		require.NoError(t, err)
		run, here := g.Optimizers[fmt.Sprintf("clipped %.1f", limit)], newProblem[float64](g.Start)
		local, err := optim.New(optim.SGD{LR: 0.05, Momentum: 0.9}, here.params...)
		require.NoError(t, err)
		for n := 1; n <= 10; n++ {
			require.NoError(t, s.pass(t, n, func(c context.Context) error {
				norm, err := dist.GradNorm(c)
				require.NoError(t, err)
				before, err := ctx.Gradients(c)
				require.NoError(t, err)
				got, err := dist.StepClipped(c, limit)
				require.Equal(t, norm, got)
				after, gerr := ctx.Gradients(c)
				require.NoError(t, gerr)
				require.Equal(t, before, after)
				return err
			}))
			_, err := local.StepClipped(here.gradients(t, n), limit)
			require.NoError(t, err)
			here.close(t, s.values(t), 1e-14)
			if want := run.At[strconv.Itoa(n)]; want != nil {
				here.close(t, want, 1e-9)
			}
		}
		require.NoError(t, s.pass(t, 5, func(c context.Context) error {
			start := s.values(t)
			norm, err := dist.StepClipped(c, -1)
			require.ErrorIs(t, err, optim.ErrRule)
			require.Positive(t, norm)
			require.Equal(t, start, s.values(t))
			return nil
		}))
		dist.Release()
	}
}

func TestConcurrentPassesAreEachSteppedAtOneRateOnAllOwners(t *testing.T) {
	ws := world(t, 3)
	c := ws[0].Context(t.Context())
	s := newSpread(t, ws, [][]float64{{0}, {0}, {0}})
	dist, err := optim.NewDistributed(c, optim.SGD{LR: 1}, s.params...)
	require.NoError(t, err)
	defer dist.Release()
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for range 10 {
				require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
					var losses []*autodiff.Tensor
					for _, p := range s.params {
						x, err := p.ToHere(c)
						require.NoError(t, err)
						losses = append(losses, autodiff.Sum(x))
					}
					require.NoError(t, ctx.Backward(c, losses...))
					require.NoError(t, dist.SetLR(float64(1+n)))
					return dist.Step(c)
				}))
			}
		})
	}
	wg.Wait()
	got := s.values(t)
	require.Equal(t, got[0], got[1])
	require.Equal(t, got[0], got[2])
}

func TestADistributedStateIsThatOfOneProcessAndGoesOnElsewhereBitForBit(t *testing.T) {
	ws, g := world(t, 3), readGolden(t)
	c := ws[0].Context(t.Context())
	groups := func(ps []optim.Param) []optim.Group[optim.Param] {
		first, second := optim.Named(optim.Adam{AMSGrad: true}, named(ps[:2])), optim.Named(optim.SGD{LR: 0.1, Momentum: 0.9}, named(ps[2:]))
		second.Names = []string{"last"}
		return []optim.Group[optim.Param]{first, second}
	}
	s, here := newSpread(t, ws, g.Start), newProblem[float64](g.Start)
	dist, err := optim.NewDistributedGroups(c, groups(s.params)...)
	require.NoError(t, err)
	defer dist.Release()
	local, err := optim.NewGroups(optim.Named(optim.Adam{AMSGrad: true}, named(here.params[:2])),
		optim.Group[*autodiff.Tensor]{Rule: optim.SGD{LR: 0.1, Momentum: 0.9}, Params: here.params[2:], Names: []string{"last"}})
	require.NoError(t, err)
	for n := 1; n <= 6; n++ {
		require.NoError(t, s.pass(t, n, dist.Step))
		require.NoError(t, local.Step(here.gradients(t, n)))
		dist.Advance()
		local.Advance()
	}
	require.NoError(t, dist.SetLR(0.3, 1))
	require.NoError(t, local.SetLR(0.3, 1))
	state, err := dist.State(c)
	require.NoError(t, err)
	want, err := local.State()
	require.NoError(t, err)
	require.Equal(t, want.Meta, state.Meta)
	require.Len(t, state.Tensors, len(want.Tensors))
	for name, x := range want.Tensors {
		v, _ := autodiff.Values[float64](x)
		got, err := autodiff.Values[float64](state.Tensors[name])
		require.NoError(t, err, name)
		require.Equal(t, v, got, name)
	}

	again := newSpread(t, []*rpc.Worker{ws[0], ws[2]}, s.values(t)) // on other owners
	moved, err := optim.NewDistributedGroups(c, groups(again.params)...)
	require.NoError(t, err)
	defer moved.Release()
	require.NoError(t, moved.Load(c, throughJSON(t, state)))
	require.Equal(t, dist.LR(), moved.LR())
	for n := 7; n <= 12; n++ {
		require.NoError(t, s.pass(t, n, dist.Step))
		require.NoError(t, again.pass(t, n, moved.Step))
		require.Equal(t, s.values(t), again.values(t))
	}
}

func TestADistributedStateThatDoesNotFitIsRefusedWithTheNamesAndChangesNothing(t *testing.T) {
	ws, g := world(t, 2), readGolden(t)
	c := ws[0].Context(t.Context())
	s := newSpread(t, ws, g.Start) // parameters of 4, 2 and 1 numbers; the second is worker0's
	dist, err := optim.NewDistributedGroups(c, optim.Named(optim.Adam{}, named(s.params)))
	require.NoError(t, err)
	defer dist.Release()
	require.NoError(t, s.pass(t, 5, dist.Step))
	good, err := dist.State(c)
	require.NoError(t, err)
	require.NoError(t, s.pass(t, 5, dist.Step))
	before, err := dist.State(c)
	require.NoError(t, err)
	bad := good
	bad.Tensors = maps.Clone(good.Tensors)
	bad.Tensors["a.1.exp_avg"] = bad.Tensors["a.0.exp_avg"] // that of a.0, on the other worker, would fit
	err = dist.Load(c, bad)
	require.ErrorIs(t, err, optim.ErrState)
	require.ErrorContains(t, err, "a.1.exp_avg: it is float64(4); the parameter is float64(2)")
	require.ErrorContains(t, err, "dist_optimizer_test.go:")
	after, err := dist.State(c)
	require.NoError(t, err)
	require.Equal(t, before.Meta, after.Meta)
	require.Equal(t, numbersOf(t, before), numbersOf(t, after), "also on the worker whose part would fit")
	require.NoError(t, dist.Load(c, good))

	require.ErrorIs(t, dist.Load(c, optim.State{}), optim.ErrState)
	err = s.pass(t, 5, func(c context.Context) error { _, err := dist.State(c); return err })
	require.ErrorIs(t, err, optim.ErrState)
	require.ErrorContains(t, err, "a context without one")
	require.ErrorIs(t, s.pass(t, 5, func(c context.Context) error { return dist.Load(c, good) }), optim.ErrState)
}

func TestAClippedStepIsMadeAtTheRateOfWhenItWasCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(10*time.Millisecond), 2, functions()...)
		s := newSpread(t, ws, [][]float64{{1}, {1}})
		dist, err := optim.NewDistributed(ws[0].Context(t.Context()), optim.SGD{LR: 1}, s.params...)
		require.NoError(t, err)
		defer dist.Release()
		require.NoError(t, s.pass(t, 5, func(c context.Context) error {
			time.AfterFunc(15*time.Millisecond, func() { _ = dist.SetLR(1000) }) // in the round of norms
			_, err := dist.StepClipped(c, 1)
			return err
		}))
		require.Equal(t, []float64{1000}, dist.LR())
		for j := range s.params {
			require.InDelta(t, 1, s.at(t, j), 1.01)
		}
	})
}
