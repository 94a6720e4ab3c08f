// Package exampletest runs an example as the workers of a job, which are the binary of its test.
package exampletest

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
)

// Main runs the tests, or the program where a launcher has started the binary as a worker.
func Main(m *testing.M, program func()) {
	if os.Getenv("RANK") == "" {
		os.Exit(m.Run())
	}
	program()
}

// Job runs so many workers of the program to a good end, and gives what they print.
func Job(t *testing.T, workers int, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector makes every exit take a second otherwise
	var out, errs bytes.Buffer
	_, err = agent.Run(t.Context(), agent.Spec{Program: self, Args: args, NprocPerNode: workers, Stdout: &out, Stderr: &errs})
	require.NoError(t, err, "%s", &errs)
	return out.String()
}
