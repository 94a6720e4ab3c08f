package compile

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func TestAnotherSetOfResultsEveryTimeKeepsNoMoreThanABound(t *testing.T) {
	const results = 7
	c, err := New(Spec{
		Name: "many", Device: device.Host(), In: []Input{{Type: kernels.Type{Dtype: device.Float64, Shape: device.Shape{2}}, Need: true}},
		Wrap: func(op string, err error) error { return fmt.Errorf("%s: %w", op, err) },
		Body: func(g *expr.Graph, in []*gorgonia.Node) (outs []*gorgonia.Node) {
			for k := range results {
				outs = append(outs, g.Apply(kernels.Unary{Fn: kernels.Scale, C: float64(k + 1)}, in[0]))
			}
			return outs
		},
	})
	require.NoError(t, err)
	nodes := len(c.graph.Nodes())
	for mask := uint64(1); mask < 1<<results; mask++ {
		_, err := c.Backward(mask)
		require.NoError(t, err)
		require.LessOrEqual(t, len(c.back), MaxBackwards)
		require.Len(t, c.graph.Nodes(), nodes)
	}
}
