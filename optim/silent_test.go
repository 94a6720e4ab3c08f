package optim_test

import (
	"context"
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

type gradientsBy = map[*autodiff.Tensor]*autodiff.Tensor

func leaf(v ...float64) *autodiff.Tensor { return autodiff.New(v).RequireGrad() }

func TestAStepWithAGradientThatNobodyStepsIsAnErrorThatNamesTheLineAndStepsNothing(t *testing.T) {
	a, other, forgotten := leaf(1), leaf(1), leaf(1, 2, 3)
	o, err := optim.New(optim.SGD{LR: 1}, a)
	require.NoError(t, err)
	_, err = optim.New(optim.SGD{LR: 1}, other)
	require.NoError(t, err)
	g := autodiff.New([]float64{1})
	arena := autodiff.NewArena("pass 1")
	defer arena.Free()
	input := leaf(5)
	require.NoError(t, arena.Adopt(input))
	for why, grads := range map[string]gradientsBy{
		"float64(3)":                           {a: g, forgotten: autodiff.New([]float64{1, 1, 1})},
		"float64(1) on cpu, requires grad":     {leaf(1): g},
		"a key of the gradients is a nil tens": {a: g, nil: g},
		"the gradient of parameter 0 is nil":   {a: nil},
		"there are no gradients; Backward":     {},
		"there are no gradients; Backward ":    nil,
		"10 more":                              many(18),
		"after nn.To, which replaces tensors":  {a: g, forgotten: g},
	} {
		steps := []func() error{
			func() error { return o.Step(grads) }, func() error { return o.StepScaled(grads, 2) },
			func() error { _, err := o.StepClipped(grads, 1); return err },
		}
		if len(grads) > 0 {
			steps = append(steps, func() error { _, err := o.GradNorm(grads); return err })
		}
		for _, step := range steps {
			err := step()
			require.ErrorIs(t, err, optim.ErrStep, why)
			require.ErrorContains(t, err, why)
			require.ErrorContains(t, err, "silent_test.go:")
		}
	}
	require.Equal(t, 1.0, number(t, a))
	require.NoError(t, o.Step(gradientsBy{a: g, other: g, input: g}), "others step other, and the caller reads the gradient of what belongs to a pass")
	require.Equal(t, 0.0, number(t, a))
	require.Equal(t, 1.0, number(t, other))
}

func many(n int) gradientsBy {
	g := gradientsBy{}
	for range n {
		g[leaf(1)] = leaf(1)
	}
	return g
}

func TestADistributedStepWithAGradientThatNobodyStepsIsAnErrorThatNamesTheLineAndTheOwner(t *testing.T) {
	ws := world(t, 2)
	c := ws[0].Context(t.Context())
	for _, owner := range []string{"worker0", "worker1"} {
		known, second, forgotten := makeParam.Remote(c, owner, []float64{1}), makeParam.Remote(c, owner, []float64{1}), makeParam.Remote(c, owner, []float64{1, 2})
		dist, err := optim.NewDistributed(c, optim.SGD{LR: 1}, known)
		require.NoError(t, err)
		other, err := optim.NewDistributed(c, optim.SGD{LR: 1}, second)
		require.NoError(t, err)
		backward := func(c context.Context, ps ...optim.Param) {
			var losses []*autodiff.Tensor
			for _, p := range ps {
				x, err := p.ToHere(c)
				require.NoError(t, err)
				losses = append(losses, autodiff.Sum(x))
			}
			require.NoError(t, ctx.Backward(c, losses...))
		}
		require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
			err := dist.Step(c)
			require.ErrorIs(t, err, optim.ErrStep)
			require.ErrorContains(t, err, "the pass has no gradients; call ctx.Backward before")
			require.ErrorContains(t, err, "silent_test.go:")
			backward(c, known, second, forgotten)
			for _, step := range []func() error{
				func() error { return dist.Step(c) }, func() error { return dist.StepScaled(c, 2) },
				func() error { _, err := dist.StepClipped(c, 1); return err }, func() error { _, err := dist.GradNorm(c); return err },
			} {
				err = step()
				require.ErrorContains(t, err, "gradients of what no optimizer steps: tensor float64(2) on cpu, requires grad")
				require.ErrorContains(t, err, "on "+owner)
				require.ErrorContains(t, err, "silent_test.go:")
			}
			return nil
		}))
		require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
			backward(c, known, second)
			require.NoError(t, dist.Step(c), "two optimizers share a pass")
			return other.Step(c)
		}))
		require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
			backward(c, second)
			return dist.Step(c) // a parameter that the pass did not use is left alone
		}))
		for p, want := range map[optim.Param]float64{known: 0, second: 0} {
			x, err := p.ToHere(c)
			require.NoError(t, err)
			require.Equal(t, want, number(t, x))
		}
		release(dist, other)
		for _, p := range []rpc.RRef[*autodiff.Tensor]{known, second, forgotten} {
			p.Release()
		}
	}
}

func release(ds ...*optim.Distributed) {
	for _, d := range ds {
		d.Release()
	}
}

func TestANilParameterIsAnErrorThatNamesTheLine(t *testing.T) {
	_, err := optim.New(optim.SGD{LR: 1}, nil)
	require.ErrorIs(t, err, autodiff.ErrNil)
	require.ErrorContains(t, err, "silent_test.go:")
	require.ErrorContains(t, err, "parameter 0: a nil tensor")
}

// Every number of every rule: left out it is torch's default, and Zero is 0, of which the rule may
// say that it makes no sense.
func TestZeroIsSaidOfEverySettingOfEveryRule(t *testing.T) {
	none := optim.AdamW{WeightDecay: optim.Zero}.Update()
	require.Zero(t, none.WeightDecay)
	require.Equal(t, 0.01, optim.AdamW{}.Update().WeightDecay)
	fields := 0
	for _, rule := range []optim.Rule{
		optim.SGD{}, optim.Adam{}, optim.AdamW{}, optim.Adagrad{}, optim.Adadelta{}, optim.RMSprop{}, optim.Rprop{}, optim.Adamax{},
	} {
		plain := reflect.ValueOf(rule.Update())
		for i := range reflect.TypeOf(rule).NumField() {
			given := reflect.New(reflect.TypeOf(rule)).Elem()
			if given.Field(i).Kind() != reflect.Float64 {
				continue
			}
			fields++
			given.Field(i).SetFloat(0.625)
			some := reflect.ValueOf(given.Interface().(optim.Rule).Update())
			given.Field(i).SetFloat(optim.Zero)
			zero := reflect.ValueOf(given.Interface().(optim.Rule).Update())
			name, changed := reflect.TypeOf(rule).String()+"."+reflect.TypeOf(rule).Field(i).Name, 0
			for k := range plain.NumField() {
				if some.Field(k).Equal(plain.Field(k)) {
					require.True(t, zero.Field(k).Equal(plain.Field(k)), name)
					continue
				}
				changed++
				require.Equal(t, 0.625, some.Field(k).Float(), name)
				require.Zero(t, zero.Field(k).Float(), name)
				require.False(t, math.Signbit(zero.Field(k).Float()), name)
			}
			require.Equal(t, 1, changed, name)
		}
	}
	require.Equal(t, 38, fields)
}

func TestAdamWWithoutDecayIsAdam(t *testing.T) {
	step := func(r optim.Rule) float64 {
		w := leaf(3)
		o, err := optim.New(r, w)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, o.Step(gradientsBy{w: autodiff.New([]float64{0.5})}))
		}
		return number(t, w)
	}
	require.Equal(t, step(optim.Adam{}), step(optim.AdamW{WeightDecay: optim.Zero}))
	require.NotEqual(t, step(optim.Adam{}), step(optim.AdamW{}))
}

func TestZeroIsSaidOfACycle(t *testing.T) {
	require.Greater(t, optim.OneCycle{Total: 10, Rise: optim.Zero}.Schedule()(0), 0.97, "it does not rise")
	require.InDelta(t, 1/25.0, optim.OneCycle{Total: 10}.Schedule()(0), 1e-12)
}

func TestDampeningWithoutAMomentumIsRefused(t *testing.T) {
	_, err := optim.New(optim.SGD{LR: 1, Dampening: 0.5}, leaf(1))
	require.ErrorIs(t, err, optim.ErrRule)
	require.ErrorContains(t, err, "dampening is of momentum, and there is none")
}
