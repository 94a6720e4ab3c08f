package talktest

import (
	"embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/*.talk
var talks embed.FS

// Recordings are the names of the files that have one.
func Recordings(t testing.TB) []string {
	t.Helper()
	files, err := talks.ReadDir("testdata")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 7)
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name()
	}
	return names
}

// RecordedIn is the conversation of such a file.
func RecordedIn(t testing.TB, name string) (x []Line) {
	t.Helper()
	content, err := talks.ReadFile("testdata/" + name)
	require.NoError(t, err)
	for text := range strings.Lines(string(content)) {
		who, bytes, ok := strings.Cut(strings.TrimSpace(text), " ")
		require.True(t, ok)
		if who == ">" {
			x = append(x, Line{"client", bytes, ""})
		} else {
			x[len(x)-1].Answer = bytes
		}
	}
	return x
}
