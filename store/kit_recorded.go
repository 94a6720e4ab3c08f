package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordings are the files that have one.
func recordings(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/torch-*.talk")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 7)
	return paths
}

func recordedIn(t testing.TB, path string) (x []line) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for text := range strings.Lines(string(content)) {
		who, bytes, ok := strings.Cut(strings.TrimSpace(text), " ")
		require.True(t, ok)
		if who == ">" {
			x = append(x, line{"client", bytes, ""})
		} else {
			x[len(x)-1].answer = bytes
		}
	}
	return x
}
