package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/kernels"
)

func TestTheProcessorRefusesWhatIsNarrow(t *testing.T) {
	_, err := Backend{}.Prepare(kernels.Narrow{Of: kernels.MatMul{}, Outs: []bool{true}}, []kernels.Type{cpuf32(2, 2), cpuf32(2, 2)})
	require.ErrorIs(t, err, kernels.ErrNoBackend)
	_, narrows := kernels.Backend(Backend{}).(kernels.Narrower)
	require.False(t, narrows)
}
