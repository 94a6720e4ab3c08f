package optim

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// oracle steps one number by torch's documented formula.
type oracle func(step int, p, g float64, s []float64) float64

func sgdOracle(r SGD) oracle {
	return func(_ int, p, g float64, s []float64) float64 {
		g += r.WeightDecay * p
		if r.Momentum != 0 {
			s[0] = r.Momentum*s[0] + g
			if r.Nesterov {
				g += r.Momentum * s[0]
			} else {
				g = s[0]
			}
		}
		return p - r.LR*g
	}
}

func adamOracle(r Adam, decoupled bool) oracle {
	r = r.filled()
	return func(step int, p, g float64, s []float64) float64 {
		if decoupled {
			p -= r.LR * r.WeightDecay * p
		} else {
			g += r.WeightDecay * p
		}
		s[0] = r.Beta1*s[0] + (1-r.Beta1)*g
		s[1] = r.Beta2*s[1] + (1-r.Beta2)*g*g
		m := s[0] / (1 - math.Pow(r.Beta1, float64(step)))
		v := s[1] / (1 - math.Pow(r.Beta2, float64(step)))
		return p - r.LR*m/(math.Sqrt(v)+r.Eps)
	}
}

var rules = []struct {
	rule Rule
	want oracle
}{
	{SGD{LR: 0.05}, sgdOracle(SGD{LR: 0.05})},
	{SGD{LR: 0.05, WeightDecay: 0.1}, sgdOracle(SGD{LR: 0.05, WeightDecay: 0.1})},
	{SGD{LR: 0.05, Momentum: 0.9}, sgdOracle(SGD{LR: 0.05, Momentum: 0.9})},
	{SGD{LR: 0.05, Momentum: 0.9, WeightDecay: 0.1, Nesterov: true}, sgdOracle(SGD{LR: 0.05, Momentum: 0.9, WeightDecay: 0.1, Nesterov: true})},
	{Adam{}, adamOracle(Adam{}, false)},
	{Adam{LR: 0.02, Beta1: 0.8, Beta2: 0.95, Eps: 1e-6, WeightDecay: 0.1}, adamOracle(Adam{LR: 0.02, Beta1: 0.8, Beta2: 0.95, Eps: 1e-6, WeightDecay: 0.1}, false)},
	{AdamW{LR: 0.02, WeightDecay: 0.1}, adamOracle(Adam{LR: 0.02, WeightDecay: 0.1}, true)},
}

func TestAHundredStepsEqualTheFormula(t *testing.T) {
	for _, c := range rules {
		t.Run(c.rule.String(), func(t *testing.T) {
			src := rand.New(rand.NewPCG(1, 2))
			const n = 7
			p, states := make([]float64, n), make([][]float64, n)
			for i := range p {
				p[i], states[i] = src.NormFloat64(), make([]float64, 2)
			}
			w := autodiff.New(p).RequireGrad()
			o, err := New(c.rule, w)
			require.NoError(t, err)
			for step := 1; step <= 100; step++ {
				g := make([]float64, n)
				for i := range g {
					g[i] = src.NormFloat64()
					p[i] = c.want(step, p[i], g[i], states[i])
				}
				require.NoError(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{w: autodiff.New(g)}))
			}
			got, err := autodiff.Values[float64](w)
			require.NoError(t, err)
			require.InDeltaSlice(t, p, got, 1e-12)
		})
	}
}

func TestAParameterWithoutAGradientIsLeftAloneWithItsState(t *testing.T) {
	for _, c := range rules {
		a, b := autodiff.New([]float64{1, 2}).RequireGrad(), autodiff.New([]float64{3, 4}).RequireGrad()
		o, err := New(c.rule, a, b)
		require.NoError(t, err)
		g := autodiff.New([]float64{1, 1})
		require.NoError(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{a: g}))
		require.NoError(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{a: g}))
		got, err := autodiff.Values[float64](b)
		require.NoError(t, err)
		require.Equal(t, []float64{3, 4}, got)
		require.Equal(t, 0, o.params[1].steps)
		require.Equal(t, 2, o.params[0].steps)
	}
}

func TestSettingsThatMakeNoSenseAreAllReported(t *testing.T) {
	w := autodiff.New([]float64{1}).RequireGrad()
	_, err := New(SGD{LR: -1, Momentum: -1, WeightDecay: -1, Nesterov: true}, w)
	require.ErrorIs(t, err, ErrRule)
	for _, part := range []string{"learning rate -1", "momentum -1", "weight decay -1", "Nesterov needs a momentum"} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(AdamW{LR: -1, Beta1: 1, Beta2: 2, Eps: -1, WeightDecay: -1}, w)
	for _, part := range []string{"AdamW", "learning rate", "beta1 1", "beta2 2", "eps -1", "weight decay"} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(nil, w)
	require.ErrorIs(t, err, ErrRule)
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
