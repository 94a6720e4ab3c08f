package transport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	require.Equal(t, "short", truncate("short"))
	long := "x" + strings.Repeat("é", 1000)
	require.Equal(t, long[:199], truncate(long))
	require.Equal(t, fmt.Sprintf("%0200d", 0), truncate(fmt.Sprintf("%0300d", 0)))
}
