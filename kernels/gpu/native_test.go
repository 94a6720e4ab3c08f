//go:build gpu && linux && (amd64 || arm64) && !race && !gpucheck

package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels/gpu"
)

// The same text, by way of the driver's calls, over a driver that is fake. With the race detector
// this takes minutes, and a training step of examples/digits stands for it.
func TestEveryInstructionAgreesWithItsDefinitionThroughTheDriver(t *testing.T) {
	lib, err := fakecuda.Open(t.TempDir())
	require.NoError(t, err)
	lib.Use(fakecuda.Interpreter())
	driver, err := native.Open(0)
	require.NoError(t, err)
	d, err := gpu.On(driver, device.CUDA(0))
	require.NoError(t, err)
	kerneltest.RunFew(t, func(*testing.T) device.Device { return d })
	require.NoError(t, d.Close())
	require.Zero(t, lib.Live(), "what the driver gave")
}
