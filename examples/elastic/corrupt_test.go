package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestTrainingGoesOnFromTheCheckpointBeforeOneWhoseBytesHaveChanged(t *testing.T) {
	dir, self := t.TempDir(), must(os.Executable())(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	args := []string{"--epochs", "2", "--plot", "", "--checkpoints", filepath.Join(dir, "checkpoints"), "--result", filepath.Join(dir, "result.json"), "--lines", "10"}
	train := func() string {
		var out proctest.Output
		_, err := agent.Run(t.Context(), agent.Spec{Program: self, Args: args, NprocPerNode: 3, Stdout: &out, Stderr: &out})
		require.NoError(t, err, "%s", &out)
		return out.String()
	}
	train()
	files, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*90.0", "rank-00000*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	b[len(b)-1] ^= 4
	require.NoError(t, os.WriteFile(files[0], b, 0o644))
	out := train()
	require.Contains(t, out, "the checkpoint of step 90 is refused: ")
	require.Contains(t, out, files[0])
	require.Contains(t, out, "the job begins: 3 workers go on from the checkpoint of step 80\n")
	requireSame(t, undisturbed(t, "--epochs", "2"), readResult(t, filepath.Join(dir, "result.json")))
}
