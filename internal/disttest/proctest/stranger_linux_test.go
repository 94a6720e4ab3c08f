package proctest_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestAStrangersProcessBelongsToAnotherUser(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700)) //nolint:gosec // a folder
	p := proctest.StartStranger(t, nil)
	var uid int
	require.NoError(t, p.Ask(t.Context(), "uid", struct{}{}, &uid))
	require.Equal(t, proctest.Nobody, uid)
	require.ErrorContains(t, p.Ask(t.Context(), "list", dir, nil), "permission denied")
}
