package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBestIsTheFirstOfAllAndPlainTheLast(t *testing.T) {
	require.Same(t, All[float32]()[0], Best[float32]())
	require.Equal(t, "plain", Plain[float64]().Name)
	require.Same(t, Plain[float64](), Plain[float64]())
}

func TestTheMaximumIsNaNWhereThereIsOneAndMinusInfinityOfNothing(t *testing.T) {
	p := Plain[float32]()
	nan := float32(math.NaN())
	require.True(t, math.IsNaN(float64(p.Max([]float32{1, nan, 2}))))
	require.True(t, math.IsInf(float64(p.Max(nil)), -1))
}
