package autodiff

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrawGivesASecondRunWhatItGaveTheFirst(t *testing.T) {
	n, runs := uint64(0), [][]uint64{}
	next := func() uint64 { n++; return n }
	more := 0
	fn := func(in ...*Tensor) []*Tensor {
		drawn := []uint64{Draw(in[0], next), Draw(in[0], next)}
		for range more {
			drawn = append(drawn, Draw(in[0], next))
		}
		runs = append(runs, drawn)
		return []*Tensor{Tanh(in[0])}
	}
	x := Rand(2).RequireGrad()
	y := Checkpoint(fn, x)[0]
	for range 2 {
		_, err := BackwardWith(Options{RetainGraph: true}, Sum(y))
		require.NoError(t, err)
	}
	require.Equal(t, [][]uint64{{1, 2}, {1, 2}, {1, 2}}, runs, "however often it runs again")
	require.Equal(t, uint64(3), Draw(x, next), "outside of checkpoints every one is new")
	require.Equal(t, uint64(4), Draw(nil, next))
	more = 1
	_, err := Backward(Sum(y))
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2, 5}, runs[3], "a function that draws more than the first time gets new ones")
}

func TestWhatDoesNotFitAWindowIsAnErrorWithTheCallersLine(t *testing.T) {
	x, c := Rand(2, 3, 4, 4), Rand(4)
	y, mean, variance := BatchNorm(x, c, c, 1e-5)
	for _, bad := range []*Tensor{y, mean, variance, BatchNormWith(x, c, c, c, c, 1e-5)} {
		require.ErrorContains(t, bad.Err(), "draw_test.go:")
		require.ErrorContains(t, bad.Err(), "float32(4) has not one number for each channel (axis 1) of float32(2, 3, 4, 4)")
	}
	require.ErrorContains(t, Dropout(x, c, 0.5).Err(), "draw_test.go:")
	require.ErrorContains(t, Dropout(x, nil, 0.5).Err(), "draw_test.go:")
}
