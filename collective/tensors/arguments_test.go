package tensors

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
)

func TestWhoGivesNoGroupGetsAFailedTensor(t *testing.T) {
	c, x := t.Context(), autodiff.New([]float32{1, 2}).RequireGrad()
	for what, y := range map[string]*autodiff.Tensor{
		"AllReduce":     AllReduce(c, nil, x, collective.Sum),
		"Max":           AllReduce(c, nil, x, collective.Max),
		"Reduce":        Reduce(c, nil, x, collective.Sum, 0),
		"Prod":          Reduce(c, nil, x, collective.Prod, 0),
		"Broadcast":     Broadcast(c, nil, x, 0),
		"AllGather":     AllGather(c, nil, x, 0),
		"Gather":        Gather(c, nil, x, 0, 0),
		"ReduceScatter": ReduceScatter(c, nil, x, 0, collective.Sum),
		"AllToAll":      AllToAll(c, nil, x),
		"Scatter":       Scatter(c, nil, x, 0, 0),
		"Enter":         Enter(c, nil, x),
		"Leave":         Leave(c, nil, x),
	} {
		require.ErrorIs(t, y.Err(), collective.ErrArguments, what)
	}
}
