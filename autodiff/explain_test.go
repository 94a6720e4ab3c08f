package autodiff

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

var rewriteFiles = flag.Bool("rewrite", false, "write what Explain prints into testdata, to be read before it is committed")

func mlpInputs() (*Func, []*Tensor) {
	f := Define("mlp", func(g *Graph, x, labels, w1, b1, w2, b2, w3, b3 node) node {
		h := g.ReLU(g.Linear(x, w1, b1))
		h = g.ReLU(g.Linear(h, w2, b2))
		return g.CrossEntropy(g.Linear(h, w3, b3), labels)
	})
	in := []*Tensor{Zeros(device.Float32, 64, 784), Zeros(device.Int64, 64)}
	for _, s := range [][]int{{784, 1024}, {1024}, {1024, 1024}, {1024}, {1024, 10}, {10}} {
		in = append(in, Zeros(device.Float32, s...).RequireGrad())
	}
	return f, in
}

// The MLP of the benchmarks.
func TestTheStepOfAnMLPIsProductsWithBiasesActivationsAndTheirGradients(t *testing.T) {
	f, in := mlpInputs()
	var text, all strings.Builder
	require.NoError(t, f.Explain(&all, in...))
	for line := range strings.Lines(all.String()) {
		if !strings.HasPrefix(line, "memory") { // the plan's
			text.WriteString(line)
		}
	}
	const file = "testdata/mlp.explain"
	if *rewriteFiles {
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text.String())
	for _, alone := range []string{"  Add", "  Relu", "  ReluGrad", "  Transpose", "  BroadcastTo"} {
		require.NotContains(t, text.String(), alone+" ", "an instruction of its own")
	}
	require.Equal(t, 2, strings.Count(text.String(), "MatMul a·bᵀ + ReluGrad + Sum [0]"))
}

func TestExplainAndDotReportWhatACallWould(t *testing.T) {
	f, in := mlpInputs()
	var text strings.Builder
	for _, show := range []func() error{
		func() error { return f.Explain(&text, in[1:]...) },
		func() error { return f.Dot(&text, in[1:]...) },
	} {
		require.ErrorIs(t, show(), ErrFunction)
	}
	in[2] = Zeros(device.Float32, 783, 1024)
	require.ErrorContains(t, f.Explain(&text, in...), "784")
	require.Empty(t, text.String())
	_, in = mlpInputs()
	require.NoError(t, f.Dot(&text, in...))
	require.Equal(t, 2, strings.Count(text.String(), "digraph"))
	text.Reset()
	for k, x := range in {
		in[k] = x.Detach()
	}
	require.NoError(t, f.Dot(&text, in...))
	require.Equal(t, 1, strings.Count(text.String(), "digraph"), "nothing has a gradient")
}
