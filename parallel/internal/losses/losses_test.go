package losses_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/parallel/internal/losses"
)

func TestRowsAreCountedAsFarAsFloat32IsExact(t *testing.T) {
	most := losses.MostRows
	require.Equal(t, float32(most), float32(most-1)+1)
	for _, at := range []struct {
		before, rows, ranks int
		ok                  bool
	}{
		{0, 0, 1, true}, {0, -1, 1, false}, {0, most, 1, true}, {0, most + 1, 1, false},
		{0, most / 4, 4, true}, {0, most/4 + 1, 4, false},
		{1, most/4 - 1, 4, true}, {1, most / 4, 4, false}, {1, -1, 1, false}, {1, math.MaxInt, 1, false},
	} {
		err := losses.Countable(at.before, at.rows, at.ranks)
		require.Equal(t, !at.ok, errors.Is(err, losses.ErrRows), "%+v: %v", at, err)
	}
}

func TestABackwardIsWeighted(t *testing.T) {
	x, y := autodiff.New([]float32{2, 3}).RequireGrad(), autodiff.New([]float32{5, 7}).RequireGrad()
	got := map[*autodiff.Tensor][]float32{}
	take := func(leaf, grad *autodiff.Tensor) (err error) {
		defer autodiff.Release(grad)
		got[leaf], err = autodiff.Values[float32](grad)
		return err
	}
	require.NoError(t, losses.Backward(autodiff.Sum(autodiff.Mul(x, y)), 0.5, take))
	require.Equal(t, map[*autodiff.Tensor][]float32{x: {2.5, 3.5}, y: {1, 1.5}}, got)
}

func TestABackwardFailsWithWhatIsNoLossAndWithWhatTakesGradients(t *testing.T) {
	x, gone := autodiff.New([]float32{2, 3}).RequireGrad(), errors.New("gone")
	require.ErrorIs(t, losses.Backward(x, 1, nil), autodiff.ErrNotScalar)
	require.ErrorIs(t, losses.Backward(autodiff.Failed(gone), 1, nil), gone)
	err := losses.Backward(autodiff.Sum(x), 1, func(_, grad *autodiff.Tensor) error {
		autodiff.Release(grad)
		return gone
	})
	require.ErrorIs(t, err, gone)
}
