//go:build gpu && linux && (amd64 || arm64) && !gpucheck

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/kernels/gpu"
)

// Every call of a training step goes through the driver, which is fake: its kernels' text is
// interpreted, and its cuBLASLt is loops. It happens in a process of its own: in this one another
// test may have looked for a GPU already, and the driver is opened once.
func TestTheModelTrainsThroughTheDriverAsOnTheCPU(t *testing.T) {
	lib := fakecuda.Alone(t)
	if lib == nil {
		return
	}
	lib.Use(fakecuda.Interpreter())
	driver, err := native.Open(0)
	require.NoError(t, err)
	d, err := gpu.On(driver, device.CUDA(0))
	require.NoError(t, err)
	requireRelative(t, trainOn(t, rule(0.05), device.Host()), trainOn(t, rule(0.05), d), 1e-5, "fake")
	require.NoError(t, d.Close())
}
