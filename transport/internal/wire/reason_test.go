package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	require.Equal(t, "short", Truncate("short"))
	long := "x" + strings.Repeat("é", 1000)
	require.Equal(t, long[:199], Truncate(long))
	require.Equal(t, fmt.Sprintf("%0200d", 0), Truncate(fmt.Sprintf("%0300d", 0)))
}
