package optim_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

var makeParam = rpc.Define("param", func(_ context.Context, v []float64) (*autodiff.Tensor, error) {
	return autodiff.New(v).RequireGrad(), nil
})

var makeFrozen = rpc.Define("frozen", func(_ context.Context, v []float64) (*autodiff.Tensor, error) {
	return autodiff.New(v), nil
})

func functions() []rpc.Function { return append(optim.Functions(), makeParam, makeFrozen) }

// world joins workers that serve the optimizers.
func world(t *testing.T, n int) []*rpc.Worker {
	return rpctest.World(t, rpctest.Net(), n, functions()...)
}

func TestParametersOnThreeWorkersAreSteppedAsInOneProcess(t *testing.T) {
	ws := world(t, 3)
	for _, rule := range []optim.Rule{
		optim.SGD{LR: 0.05}, optim.SGD{LR: 0.05, Momentum: 0.9, Nesterov: true, WeightDecay: 0.1}, optim.Adam{}, optim.AdamW{LR: 0.01, WeightDecay: 0.1},
	} {
		c := ws[0].Context(t.Context())
		start := [][]float64{{1, 2}, {3, 4}, {5, 6}}
		var refs []optim.Param
		var here []*autodiff.Tensor
		for i, v := range start {
			refs = append(refs, makeParam.Remote(c, ws[i].Name(), v))
			here = append(here, autodiff.New(v).RequireGrad())
		}
		dist, err := optim.NewDistributed(c, rule, refs...)
		require.NoError(t, err)
		local, err := optim.New(rule, here...)
		require.NoError(t, err)
		loss := func(p []*autodiff.Tensor) *autodiff.Tensor {
			return autodiff.Sum(autodiff.Mul(autodiff.Mul(p[0], p[1]), autodiff.Tanh(p[2])))
		}
		for range 10 {
			grads, err := autodiff.Backward(loss(here))
			require.NoError(t, err)
			require.NoError(t, local.Step(grads.All()))
			require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
				p := make([]*autodiff.Tensor, len(refs))
				for i, r := range refs {
					var err error
					p[i], err = r.ToHere(c)
					require.NoError(t, err)
				}
				require.NoError(t, ctx.Backward(c, loss(p)))
				return dist.Step(c)
			}))
		}
		for i, r := range refs {
			got, err := r.ToHere(c)
			require.NoError(t, err)
			g, err := autodiff.Values[float64](got)
			require.NoError(t, err)
			want, err := autodiff.Values[float64](here[i])
			require.NoError(t, err)
			require.Equal(t, want, g, "%v, parameter %d", rule, i)
			r.Release()
		}
		dist.Release()
		require.NoError(t, ws[0].Settle(c))
	}
}

func TestAnOwnerThatThePassDidNotReachIsLeftAlone(t *testing.T) {
	ws := world(t, 2)
	c := ws[0].Context(t.Context())
	a, b := makeParam.Remote(c, "worker0", []float64{1}), makeParam.Remote(c, "worker1", []float64{1})
	dist, err := optim.NewDistributed(c, optim.SGD{LR: 1, Momentum: 0.5}, a, b)
	require.NoError(t, err)
	defer dist.Release()
	require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
		p, err := a.ToHere(c)
		require.NoError(t, err)
		require.NoError(t, ctx.Backward(c, autodiff.Sum(p)))
		return dist.Step(c)
	}))
	for ref, want := range map[optim.Param]float64{a: 0, b: 1} {
		v, err := ref.ToHere(c)
		require.NoError(t, err)
		got, err := v.Item()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestConcurrentPassesThatStepOneRemoteParameterLoseNoStep(t *testing.T) {
	ws := world(t, 3)
	c := ws[0].Context(t.Context())
	p := makeParam.Remote(c, "worker2", []float64{0})
	dist, err := optim.NewDistributed(c, optim.SGD{LR: 1}, p)
	require.NoError(t, err)
	defer dist.Release()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
					v, err := p.ToHere(c)
					require.NoError(t, err)
					require.NoError(t, ctx.Backward(c, autodiff.Sum(v)))
					return dist.Step(c)
				}))
			}
		})
	}
	wg.Wait()
	v, err := p.ToHere(c)
	require.NoError(t, err)
	got, err := v.Item()
	require.NoError(t, err)
	require.Equal(t, -40.0, got)
}

func TestADistributedOptimizerSaysWhatIsWrongAndWhere(t *testing.T) {
	ws := world(t, 2)
	c := ws[0].Context(t.Context())
	_, err := optim.NewDistributed(c, optim.SGD{LR: 1})
	require.ErrorIs(t, err, optim.ErrParameters)
	good := makeParam.Remote(c, "worker1", []float64{1})
	_, err = optim.NewDistributed(c, optim.SGD{}, good)
	require.ErrorIs(t, err, optim.ErrRule)
	_, err = optim.NewDistributed(c, nil, good)
	require.ErrorIs(t, err, optim.ErrRule)
	frozen, err := rpc.NewRRef(c, autodiff.Ones(device.Float64, 1))
	require.NoError(t, err)
	_, err = optim.NewDistributed(c, optim.SGD{LR: 1}, good, frozen)
	require.ErrorContains(t, err, "error creating optimizer on worker0")
	dist, err := optim.NewDistributed(c, optim.SGD{LR: 1}, good)
	require.NoError(t, err)
	require.ErrorIs(t, dist.Step(c), ctx.ErrNoPass)
	dist.Release()
}
