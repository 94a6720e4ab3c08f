package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func TestWhatHasNoKernelForBFloat16IsNotSaidToReadOrWriteIt(t *testing.T) {
	b, x := &backend{}, kernels.Type{Dtype: device.BFloat16, Shape: device.Shape{2, 3}}
	require.False(t, b.readsNarrow(kernels.Softmax{Axis: 1}, []kernels.Type{x}, 0))
	require.False(t, b.writesNarrow(kernels.Softmax{Axis: 1}, []kernels.Type{x}, 0))
}
