package optim_test

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
)

type gradients = map[*autodiff.Tensor]*autodiff.Tensor

func number(t *testing.T, x *autodiff.Tensor) float64 {
	t.Helper()
	v, err := x.Item()
	require.NoError(t, err)
	return v
}

func TestLearningRatesAreSetPerGroupAndASchedulesFactorComesOnTop(t *testing.T) {
	a, b := autodiff.New([]float64{0}).RequireGrad(), autodiff.New([]float64{0}).RequireGrad()
	o, err := optim.NewGroups(
		optim.Group[*autodiff.Tensor]{Rule: optim.SGD{LR: 1}, Params: []*autodiff.Tensor{a}},
		optim.Group[*autodiff.Tensor]{Rule: optim.SGD{LR: 2}, Params: []*autodiff.Tensor{b}},
	)
	require.NoError(t, err)
	minus := autodiff.New([]float64{-1})
	step := func() []float64 {
		require.NoError(t, o.Step(gradients{a: minus, b: minus}))
		return []float64{number(t, a), number(t, b)}
	}
	require.Equal(t, []float64{1, 2}, step())
	require.NoError(t, o.SetLR(10, 1))
	require.Equal(t, []float64{2, 12}, step())
	o.SetSchedule(optim.Exponential(0.5))
	require.Equal(t, []float64{3, 22}, step(), "it was not advanced yet")
	o.Advance()
	require.Equal(t, []float64{0.5, 5}, o.LR())
	require.Equal(t, []float64{3.5, 27}, step())
	require.NoError(t, o.SetLR(0))
	require.Equal(t, []float64{3.5, 27}, step())
	o.SetSchedule(nil)
	require.NoError(t, o.SetLR(1))
	require.Equal(t, []float64{4.5, 28}, step())
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		require.ErrorIs(t, o.SetLR(bad), optim.ErrRule)
	}
	require.ErrorIs(t, o.SetLR(1, 0, 2), optim.ErrRule)
	require.ErrorIs(t, o.SetLR(1, -1), optim.ErrRule)
	require.Equal(t, []float64{1, 1}, o.LR())
	o.SetSchedule(func(int) float64 { return math.NaN() })
	require.ErrorContains(t, o.Step(gradients{a: minus}), "learning rate NaN")
	require.Equal(t, 4.5, number(t, a))
}

func TestAStepIsMadeAtOneRateWhateverIsSetMeanwhile(t *testing.T) {
	var params []*autodiff.Tensor
	grads := gradients{}
	for range 8 {
		p := autodiff.Zeros(device.Float64, 1).RequireGrad()
		params, grads[p] = append(params, p), autodiff.New([]float64{-1})
	}
	o, err := optim.New(optim.SGD{LR: 1}, params...)
	require.NoError(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				require.NoError(t, o.SetLR(float64(n%7)))
			}
		}
	})
	for range 200 {
		require.NoError(t, o.Step(grads))
		for _, p := range params {
			require.Equal(t, number(t, params[0]), number(t, p))
		}
	}
	close(stop)
	wg.Wait()
}
