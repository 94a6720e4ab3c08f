package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOurServerSaysWhatPyTorchsDidInEveryRecordedConversation replays what a client of PyTorch's
// said to its own server: every operation of its release. internal/disttest/interop records them,
// and checks that they are still said.
func TestOurServerSaysWhatPyTorchsDidInEveryRecordedConversation(t *testing.T) {
	for _, path := range recordings(t) {
		release := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "torch-"), ".talk")
		t.Run(release, func(t *testing.T) {
			d, err := ParseDialect(release)
			require.NoError(t, err)
			if d == Dialect113 || d == Dialect22 {
				d = DialectAuto
			}
			recordedIn(t, path).run(t, ServerConfig{Dialect: d})
		})
	}
}

// recordings are the files that have one.
func recordings(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/torch-*.talk")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 7)
	return paths
}

func recordedIn(t testing.TB, path string) (x talk) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		who, bytes, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok)
		if who == ">" {
			x = append(x, struct{ who, ask, answer string }{"client", bytes, ""})
		} else {
			x[len(x)-1].answer = bytes
		}
	}
	return x
}
