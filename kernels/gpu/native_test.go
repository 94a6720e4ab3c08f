//go:build gpu && linux && (amd64 || arm64) && !race && !gpucheck

package gpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

// noise is numbers of a normal distribution.
func noise(r *rand.Rand, shape ...int) kerneltest.Tensor {
	x := kerneltest.Tensor{Type: kernels.Type{Dtype: device.Float32, Shape: shape}}
	for range x.Shape.Elems() {
		x.V = append(x.V, float64(float32(r.NormFloat64())))
	}
	return x
}

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

	driver, err = native.Open(0)
	require.NoError(t, err)
	d, err = gpu.Config{Precision: gpu.FP8, FP8From: 1}.On(driver, device.CUDA(0))
	require.NoError(t, err)
	var products [2]kerneltest.Tensor
	for k, dev := range []device.Device{device.Host(), d} {
		r := rand.New(rand.NewPCG(8, 9))
		in := []kerneltest.Tensor{noise(r, 64, 144), noise(r, 144, 32)}
		got, err := kerneltest.RunOn(t, dev, kernels.MatMul{}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{64, 32}}}, in)
		require.NoError(t, err)
		products[k] = got[0]
	}
	require.Contains(t, backends.Ways(d), kernels.Way{Work: "FP8 product", By: "library", Times: 1})
	off, size := 0.0, 0.0
	for k, v := range products[0].V {
		off, size = off+(products[1].V[k]-v)*(products[1].V[k]-v), size+v*v
	}
	require.InDelta(t, 0.035, math.Sqrt(off/size), 0.02, "the roundings of both factors")
	require.NoError(t, d.Close())
	attendByFours(t, lib)
	require.Zero(t, lib.Live(), "what the driver gave")
}

// attendByFours computes attention by what compute capability 9.0 has; where the driver encodes no
// maps, others do.
func attendByFours(t *testing.T, lib *fakecuda.Library) {
	for unmapped, by := range []string{"wgmma", "mma.sync"} {
		lib.Set("unmapped", unmapped)
		driver, err := native.Open(0)
		require.NoError(t, err)
		d, err := gpu.Config{Precision: gpu.BF16, Hopper: true}.On(driver, device.CUDA(0))
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(9, 90))
		in := []kerneltest.Tensor{noise(r, 1, 70, 1, 64), noise(r, 1, 140, 1, 64), noise(r, 1, 140, 1, 64)}
		made := []kernels.Type{in[0].Type, {Dtype: device.Float32, Shape: device.Shape{1, 1, 70}}}
		want, err := kerneltest.RunOn(t, device.Host(), kernels.Attention{Causal: true}, made, in)
		require.NoError(t, err)
		got, err := kerneltest.RunOn(t, d, kernels.Attention{Causal: true}, made, in)
		require.NoError(t, err)
		for k := range want {
			require.InDeltaSlice(t, want[k].V, got[k].V, 0.1) // of scores of tens of units
		}
		ways := backends.Ways(d)
		require.Equal(t, "bfloat16 attention", ways[0].Work)
		require.Equal(t, by, ways[0].By)
		require.NoError(t, d.Close())
	}
	lib.Set("unmapped", 0)
}
