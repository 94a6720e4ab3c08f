package server

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// TestOurServerSaysWhatPyTorchsDidInEveryRecordedConversation replays what a client of PyTorch's
// said to its own server: every operation of its release. internal/disttest/interop records them,
// and checks that they are still said.
func TestOurServerSaysWhatPyTorchsDidInEveryRecordedConversation(t *testing.T) {
	for _, path := range talktest.Recordings(t) {
		release := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "torch-"), ".talk")
		t.Run(release, func(t *testing.T) {
			d, err := wire.ParseDialect(release)
			require.NoError(t, err)
			if d == wire.Dialect113 || d == wire.Dialect22 {
				d = wire.DialectAuto
			}
			talk(talktest.RecordedIn(t, path)).run(t, Config{Dialect: d})
		})
	}
}
