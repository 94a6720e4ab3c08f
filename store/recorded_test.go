package store

import (
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
			talk(recordedIn(t, path)).run(t, ServerConfig{Dialect: d})
		})
	}
}
