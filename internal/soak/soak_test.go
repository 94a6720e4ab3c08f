package soak

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCasesAreNeverFewerThanAskedButUnderTheRaceDetector(t *testing.T) {
	for _, n := range []int{0, 1, 7, few, few + 1, 4 * few, 5000} {
		switch {
		case of == 1:
			require.Equal(t, n*times, Cases(n))
		case n <= few:
			require.Equal(t, n, Cases(n))
		default:
			require.GreaterOrEqual(t, Cases(n), max(few, n/of))
			require.Less(t, Cases(n), n)
		}
	}
}
