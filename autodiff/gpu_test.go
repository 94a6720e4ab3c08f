package autodiff

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
)

func TestOnAGPUEveryOpAgreesWithTheOracleAndItsGradientWithFiniteDifferences(t *testing.T) {
	dev, err := gpu.On(testgpu.Open(t, ptx.Config{Races: true}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	place := func(x *Tensor) *Tensor { return To(x, dev) }
	for i, c := range cases() {
		args := c.in(rng(uint64(i)))
		b := build(t, c, device.Float64, args)
		f := c.compiledFunc()
		whole := func(in []*Tensor) *Tensor { return f.Call(in...) }
		t.Run(c.name, func(t *testing.T) {
			y, grads := b.oracle(args), b.differences(args)
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float64, place, whole), 1e-6, "float64")
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float32, place, whole), 2e-4, "float32")
		})
	}
}

func TestABadIndexOnAGPUIsToldWithTheUsersLine(t *testing.T) {
	dev, err := gpu.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	w := To(New(make([]float32, 8), 4, 2), dev).RequireGrad()
	ids, other := To(New([]int64{1, 4}), dev), To(New([]float32{1}), dev)
	y, at := Embedding(w, ids), thisLine()
	require.NoError(t, y.Err(), "it is not known yet")
	_, err = Values[float32](other)
	require.ErrorContains(t, err, "called at "+at.String())
	require.ErrorIs(t, err, kernels.ErrIndex)
}
