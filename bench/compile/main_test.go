package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

func TestGraphsHaveAsManyOpsAsTheySay(t *testing.T) {
	for _, k := range kinds {
		nodes := 0
		f := autodiff.Define(k.name, func(g *autodiff.Graph, x, w, b *gorgonia.Node) *gorgonia.Node {
			before := len(g.ExprGraph().AllNodes())
			y := k.body(60)(g, x, w, b)
			nodes = len(g.ExprGraph().AllNodes()) - before
			return y
		})
		x, b := autodiff.Ones(device.Float32, 4, 4), autodiff.Ones(device.Float32, 4)
		require.NoError(t, f.Call(x, x, b).Err())
		require.Equal(t, 60/k.ops*k.ops+1, nodes, "%s: the ops, and the mean at the end", k.name)
	}
}

func TestItPrintsATableAndDrawsIt(t *testing.T) {
	var table bytes.Buffer
	file := filepath.Join(t.TempDir(), "times.svg")
	require.NoError(t, run(&table, 320, 1, file))
	require.Equal(t, 2+5*len(kinds), bytes.Count(table.Bytes(), []byte("\n")))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, k := range kinds {
		require.Contains(t, table.String(), k.name)
		require.Contains(t, string(svg), k.name)
	}
}
