package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheProcessorRefusesWhatIsNarrow(t *testing.T) {
	_, err := cpuBackend{}.Prepare(Narrow{Of: MatMul{}, Outs: []bool{true}}, []Type{cpuf32(2, 2), cpuf32(2, 2)})
	require.ErrorIs(t, err, ErrNoBackend)
	_, narrows := Backend(cpuBackend{}).(Narrower)
	require.False(t, narrows)
}
