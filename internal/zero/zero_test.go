package zero

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASettingIsItselfOrItsDefaultOrZero(t *testing.T) {
	require.Equal(t, 0.5, Or(0, 0.5))
	require.Equal(t, 0.5, Or(math.Copysign(0, -1), 0.5))
	require.Zero(t, Or(Itself, 0.5))
	require.Zero(t, Or(Itself, 0))
	for _, v := range []float64{1, -1, math.SmallestNonzeroFloat64, -1e-300, math.Inf(1)} {
		require.Equal(t, v, Or(v, 0.5))
	}
}
