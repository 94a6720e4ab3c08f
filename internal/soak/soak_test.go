package soak

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCasesAreNeverFewerThanAsked(t *testing.T) {
	require.Equal(t, 7*factor, Cases(7))
	require.GreaterOrEqual(t, factor, 1)
}
