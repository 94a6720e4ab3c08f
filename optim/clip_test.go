package optim_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/optim"
)

func TestClippingLeavesTheGradientsThemselvesAsTheyAre(t *testing.T) {
	a, b := autodiff.New([]float64{1, 1}).RequireGrad(), autodiff.New([]float32{1}).RequireGrad()
	ga, gb := autodiff.New([]float64{3, 0}), autodiff.New([]float32{-4})
	o, err := optim.New(optim.SGD{LR: 1}, a, b)
	require.NoError(t, err)
	norm, err := o.StepClipped(gradients{a: ga, b: gb}, 1)
	require.NoError(t, err)
	require.Equal(t, 5.0, norm)
	v, err := autodiff.Values[float64](a)
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{0.4, 1}, v, 1e-6)
	require.InDelta(t, 1.8, number(t, b), 1e-6)
	v, err = autodiff.Values[float64](ga)
	require.NoError(t, err)
	require.Equal(t, []float64{3, 0}, v)
	require.Equal(t, -4.0, number(t, gb))
}

func TestANormThatIsNotFiniteIsAnErrorAndNothingIsStepped(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e200} { // the last one's square is infinite
		a, b := autodiff.New([]float64{1}).RequireGrad(), autodiff.New([]float64{2}).RequireGrad()
		o, err := optim.New(optim.SGD{LR: 1}, a, b)
		require.NoError(t, err)
		grads := gradients{a: autodiff.New([]float64{1}), b: autodiff.New([]float64{bad})}
		_, err = o.StepClipped(grads, 1)
		require.ErrorIs(t, err, optim.ErrNorm)
		require.Equal(t, []float64{1, 2}, []float64{number(t, a), number(t, b)})
		norm, err := o.GradNorm(grads)
		require.NoError(t, err)
		require.True(t, math.IsNaN(norm) || math.IsInf(norm, 1))
	}
}

func TestALargeFloat32HasANorm(t *testing.T) {
	a := autodiff.New([]float32{1}).RequireGrad()
	o, err := optim.New(optim.SGD{LR: 1}, a)
	require.NoError(t, err)
	norm, err := o.GradNorm(gradients{a: autodiff.New([]float32{1e30})}) // torch's is infinite
	require.NoError(t, err)
	require.InEpsilon(t, 1e30, norm, 1e-6)
}

func TestAClipFactorIsTorchsAndNeverMoreThanOne(t *testing.T) {
	for _, c := range []struct{ norm, max, want float64 }{{0, 1, 1}, {0.5, 1, 1}, {1, 1, 1 / (1 + 1e-6)}, {5, 2, 2 / (5 + 1e-6)}, {5, math.Inf(1), 1}} {
		got, err := optim.ClipFactor(c.norm, c.max)
		require.NoError(t, err)
		require.InDelta(t, c.want, got, 1e-15)
	}
	for _, limit := range []float64{0, -1, math.NaN()} {
		_, err := optim.ClipFactor(1, limit)
		require.ErrorIs(t, err, optim.ErrRule)
	}
}

func TestAStepWithoutGradientsIsAnErrorAndTheirNormIsZero(t *testing.T) {
	a := autodiff.New([]float64{1}).RequireGrad()
	o, err := optim.New(optim.SGD{LR: 1, WeightDecay: 1}, a)
	require.NoError(t, err)
	norm, err := o.GradNorm(nil)
	require.NoError(t, err)
	require.Zero(t, norm)
	_, err = o.StepClipped(nil, 1)
	require.ErrorIs(t, err, optim.ErrStep)
	require.ErrorContains(t, err, "clip_test.go:")
	require.Equal(t, 1.0, number(t, a))
}

func TestGradientsAreScaledByPositiveNumbersOnly(t *testing.T) {
	a := autodiff.New([]float64{1}).RequireGrad()
	o, err := optim.New(optim.SGD{LR: 1}, a)
	require.NoError(t, err)
	g := gradients{a: autodiff.New([]float64{1})}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		require.ErrorIs(t, o.StepScaled(g, bad), optim.ErrStep)
	}
	require.NoError(t, o.StepScaled(g, 0.25))
	require.Equal(t, 0.75, number(t, a))
}
