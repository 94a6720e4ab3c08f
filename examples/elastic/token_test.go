package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestWorkersOfSeveralNodesWithoutASecretEndAtOnceAndSayWhatToDo(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	t.Setenv(elastic.TokenVariable, "")
	var out proctest.Output
	_, err := agent.Run(t.Context(), agent.Spec{Program: must(os.Executable())(t), Args: []string{"--checkpoints", filepath.Join(t.TempDir(), "c"), "--plot", ""},
		NprocPerNode: 1, MinNodes: 1, MaxNodes: 2, Endpoint: proctest.Address(), LastCall: 1, Stdout: &out, Stderr: &out})
	var failed *agent.WorkerError
	require.ErrorAs(t, err, &failed, "%s", &out)
	require.Contains(t, out.String(), "the job has no token")
	require.Contains(t, out.String(), "set $WEFT_TOKEN alike on all nodes")
}
