package nn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func TestAccuracyRefusesLabelsThatAreNoClasses(t *testing.T) {
	logits := autodiff.New([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	for _, label := range []int64{-1, 3, 1 << 40} {
		_, err := Accuracy(logits, autodiff.New([]int64{2, label}))
		require.ErrorIs(t, err, kernels.ErrIndex)
		var at *kernels.IndexError
		require.ErrorAs(t, err, &at)
		require.Equal(t, kernels.IndexError{Instr: "Accuracy", ID: label, At: 1, N: 3}, *at)
		require.ErrorContains(t, err, "silent_test.go:")
	}
	_, err := Accuracy(logits, nil)
	require.ErrorIs(t, err, autodiff.ErrNil)
	require.ErrorContains(t, err, "Accuracy: operand 1 is a nil tensor")
	require.ErrorContains(t, err, "silent_test.go:")
}

func TestZeroIsSaidOfASettingWithAnotherDefault(t *testing.T) {
	x := autodiff.New([]float64{1, 3, 2, 6}, 2, 2)
	ones, zeros := Ones(device.Float64, 2), Zeros(device.Float64, 2)
	norm := &LayerNorm{Gamma: ones, Beta: zeros, Eps: Zero}
	require.Equal(t, []float64{-1, 1, -1, 1}, read(t, norm.Forward(x)), "nothing is added to the variance")
	norm.Eps = 0
	require.NotEqual(t, []float64{-1, 1, -1, 1}, read(t, norm.Forward(x)))

	batch := &BatchNorm{Gamma: ones, Beta: zeros, RunningMean: Zeros(device.Float64, 2), RunningVar: Ones(device.Float64, 2), Eps: Zero, Momentum: Zero}
	require.Equal(t, []float64{-1, -1, 1, 1}, read(t, batch.Forward(x)))
	require.Equal(t, []float64{0, 0}, read(t, batch.RunningMean), "it stays")
	require.Equal(t, []float64{1, 1}, read(t, batch.RunningVar))
	batch.Momentum = 0
	batch.Forward(x)
	require.InDeltaSlice(t, []float64{0.15, 0.45}, read(t, batch.RunningMean), 1e-12, "by default a tenth")
}

func TestABatchNormWithHalfItsRunningStatisticsIsAnErrorThatNamesTheLine(t *testing.T) {
	x := autodiff.Rand(4, 3)
	half := NewBatchNorm(3)
	half.RunningVar = nil
	err := half.Forward(x).Err()
	require.ErrorContains(t, err, "of RunningMean and RunningVar one is nil")
	require.ErrorContains(t, err, "silent_test.go:")
}
