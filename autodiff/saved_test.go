package autodiff

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func TestTheBackwardComputesAgainWhatIsCheapForTheMemoryItSaves(t *testing.T) {
	for _, c := range []struct {
		name  string
		dtype device.Dtype
		again bool
		h     func(g *Graph, x, y node) node // of x and y, of which the backward reads x anyway
	}{
		{"Add", device.Float32, true, func(g *Graph, x, y node) node { return g.Add(x, x) }},
		{"sum with a product", device.Float32, false, func(g *Graph, x, y node) node { return g.Add(x, g.MatMul(y, y)) }}, // y·y would be kept instead
		{"Relu", device.Float64, true, func(g *Graph, x, y node) node { return g.ReLU(x) }},
		{"Log", device.Float32, true, func(g *Graph, x, y node) node { return g.Log(x) }},
		{"Log", device.Float64, false, func(g *Graph, x, y node) node { return g.Log(x) }},
		{"Normalize", device.Float32, true, func(g *Graph, x, y node) node { return g.Apply(kernels.Normalize{}, x) }},
		{"Gelu", device.Float32, false, func(g *Graph, x, y node) node { return g.GELU(x) }},
		{"Gelu", device.Float64, false, func(g *Graph, x, y node) node { return g.GELU(x) }},
	} {
		f := Define("f", func(g *Graph, x, y, w, v node) node { // w·x·x reads w·x, and h·v reads h
			x = g.MatMul(x, w)
			return g.Add(g.MatMul(c.h(g, x, y), v), g.Mul(x, x))
		})
		in := make([]*Tensor, 4)
		for k := range in {
			in[k] = Zeros(c.dtype, 16, 16).RequireGrad()
		}
		var text strings.Builder
		require.NoError(t, f.Explain(&text, in...))
		_, saved, _ := strings.Cut(text.String(), "saved for the backward:")
		saved, _, _ = strings.Cut(saved, "\n")
		want := 2 // w·x and h
		if c.again {
			want = 1
		}
		require.Equal(t, want, strings.Count(saved, "(16, 16)"), "%s of %v\n%s", c.name, c.dtype, text.String())
	}
}
