package main

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/internal/rpctest"
)

// TestMain makes the test binary the example where it is started as a worker.
func TestMain(m *testing.M) {
	if os.Getenv("WEFT_TEST_SHARDS") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTwoWorkersLearnWhatOneDoes(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("WEFT_TEST_SHARDS", "1")
	var out, errs bytes.Buffer
	_, err = agent.Run(t.Context(), agent.Spec{Program: self, NprocPerNode: 2, Stdout: &out, Stderr: &errs})
	require.NoError(t, err, errs.String())
	lines := regexp.MustCompile(`(\S+)% of`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, lines, 2, out.String())
	require.Equal(t, lines[0][1], lines[1][1])
	together, err := strconv.ParseFloat(lines[0][1], 64)
	require.NoError(t, err)

	g, err := collective.Open(t.Context(), rpctest.World(t, rpctest.Net(), 1)[0], "one")
	require.NoError(t, err)
	defer g.Close()
	data, err := table.Load("", 1)
	require.NoError(t, err)
	alone, err := train(t.Context(), g, data)
	require.NoError(t, err)
	require.InDelta(t, 100*alone, together, 1)
	require.Greater(t, together, 90.0)
}
