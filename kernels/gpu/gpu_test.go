package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/kernels/kerneltest"
)

func newGPU(t testing.TB, c ptx.Config) *device.Accelerator {
	d, err := gpu.On(ptx.New(c), device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestEveryInstructionAgreesWithItsDefinition(t *testing.T) {
	d := newGPU(t, ptx.Config{})
	kerneltest.RunFew(t, func(*testing.T) device.Device { return d })
}
