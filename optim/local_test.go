package optim

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// rules are one of each kind, with the options that change what is kept.
var rules = []Rule{
	SGD{LR: 0.05}, SGD{LR: 0.05, Momentum: 0.9}, Adam{}, Adam{AMSGrad: true}, AdamW{}, Adagrad{InitialAccumulator: 0.5}, Adadelta{}, RMSprop{},
	RMSprop{Centered: true, Momentum: 0.9}, Rprop{}, Adamax{},
}

func TestAParameterWithoutAGradientIsLeftAloneWithItsState(t *testing.T) {
	for _, rule := range rules {
		a, b := autodiff.New([]float64{1, 2}).RequireGrad(), autodiff.New([]float64{3, 4}).RequireGrad()
		o, err := New(rule, a, b)
		require.NoError(t, err)
		g := autodiff.New([]float64{1, 1})
		require.NoError(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{a: g}))
		require.NoError(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{a: g}))
		got, err := autodiff.Values[float64](b)
		require.NoError(t, err)
		require.Equal(t, []float64{3, 4}, got)
		require.Equal(t, 0, o.params[1].Steps)
		require.Empty(t, o.params[1].Slots)
		require.Equal(t, 2, o.params[0].Steps)
	}
}

func TestSettingsThatMakeNoSenseAreAllReported(t *testing.T) {
	w := autodiff.New([]float64{1}).RequireGrad()
	_, err := New(SGD{LR: -1, Momentum: -1, WeightDecay: -1, Nesterov: true}, w)
	require.ErrorIs(t, err, ErrRule)
	for _, part := range []string{"learning rate -1", "momentum -1", "weight decay -1"} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(AdamW{LR: -1, Beta1: 1, Beta2: 2, Eps: -1, WeightDecay: -1}, w)
	for _, part := range []string{"AdamW", "learning rate", "beta1 1", "beta2 2", "eps -1", "weight decay"} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(SGD{Momentum: 1}, w)
	require.ErrorContains(t, err, "SGD: learning rate 0; expected a positive one")
	_, err = New(nil, w)
	require.ErrorIs(t, err, ErrRule)
	_, err = NewGroups(Group[*autodiff.Tensor]{Rule: SGD{LR: 1}, Params: []*autodiff.Tensor{w}}, Group[*autodiff.Tensor]{Rule: Rprop{MinStep: 2, MaxStep: 1}})
	require.ErrorContains(t, err, "largest step 1")
}

func TestParametersMustBeLeavesThatRequireGradientsGivenOnce(t *testing.T) {
	w := autodiff.New([]float64{1}).RequireGrad()
	for _, params := range [][]*autodiff.Tensor{
		{}, {autodiff.New([]float64{1})}, {autodiff.Neg(w)}, {w, w}, {autodiff.Add(w, autodiff.New([]float64{1, 2, 3}, 2))},
	} {
		_, err := New(SGD{LR: 1}, params...)
		require.ErrorIs(t, err, ErrParameters)
	}
}

func TestAStepWithAGradientOfTheWrongShapeFailsAndLeavesTheOthersStepped(t *testing.T) {
	a, b := autodiff.New([]float64{1}).RequireGrad(), autodiff.New([]float64{1}).RequireGrad()
	o, err := New(SGD{LR: 1}, a, b)
	require.NoError(t, err)
	err = o.Step(map[*autodiff.Tensor]*autodiff.Tensor{a: autodiff.New([]float64{1, 2}), b: autodiff.New([]float64{1})})
	require.ErrorIs(t, err, ErrStep)
	require.ErrorContains(t, err, "parameter 0")
	va, _ := a.Item()
	vb, _ := b.Item()
	require.Equal(t, []float64{1, 0}, []float64{va, vb})
}

func TestConcurrentStepsAndForwardsOnOneParameterLoseNoStep(t *testing.T) {
	w := autodiff.Zeros(device.Float64, 16).RequireGrad()
	o, err := New(SGD{LR: 1}, w)
	require.NoError(t, err)
	minus := autodiff.Full(device.Float64, -1, 16)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				require.NoError(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{w: minus}))
			}
		})
		wg.Go(func() {
			for range 50 { // every element of a forward comes from one step
				v, err := autodiff.Values[float64](autodiff.Scale(w, 1))
				require.NoError(t, err)
				for _, x := range v {
					require.Equal(t, v[0], x)
				}
			}
		})
	}
	wg.Wait()
	v, err := autodiff.Values[float64](w)
	require.NoError(t, err)
	require.Equal(t, 200.0, v[0])
}

func TestTheGradientOfAForwardIsThatOfTheValueItReadAlsoAfterAStep(t *testing.T) {
	w := autodiff.New([]float64{3}).RequireGrad()
	o, err := New(SGD{LR: 1}, w)
	require.NoError(t, err)
	y := autodiff.Sum(autodiff.Mul(w, w))
	require.NoError(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{w: autodiff.New([]float64{100})}))
	g, err := autodiff.Backward(y)
	require.NoError(t, err)
	d, err := g.Of(w).Item()
	require.NoError(t, err)
	require.Equal(t, 6.0, d)
}
