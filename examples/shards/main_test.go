package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/examples/internal/exampletest"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/internal/rpctest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestTwoWorkersLearnWhatOneDoes(t *testing.T) {
	out := exampletest.Job(t, 2)
	lines := regexp.MustCompile(`(\S+)% of`).FindAllStringSubmatch(out, -1)
	require.Len(t, lines, 2, out)
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
