package autodiff

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

func TestTensorsOnDifferentDevicesAreNamedInTheError(t *testing.T) {
	sim, twin := device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{})
	x := New([]float64{1, 2})
	for _, y := range []*Tensor{Add(x, To(x, sim)), Concat(0, To(x, sim), x)} {
		require.ErrorIs(t, y.Err(), ErrDevices)
		require.ErrorContains(t, y.Err(), "cpu")
		require.ErrorContains(t, y.Err(), "sim:0")
		require.ErrorContains(t, y.Err(), "device_test.go:")
	}
	require.ErrorIs(t, Add(To(x, twin), To(x, sim)).Err(), ErrDevices, "two devices of one name are two devices")
}

func TestAMovedTensorsGradientComesBackToWhereItWas(t *testing.T) {
	one, two := device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{Index: 1})
	a := NewArena("pass")
	x := owned(t, a, one, 3).RequireGrad()
	moved := To(To(Scale(x, 3), two), device.Host())
	require.Equal(t, device.ID{}, moved.Device())
	require.True(t, moved.RequiresGrad())
	require.Contains(t, moved.String(), "from to cpu")
	require.Equal(t, []float64{3, 3, 3}, numbers(t, moved))
	g, err := Backward(Sum(Mul(moved, moved)))
	require.NoError(t, err)
	require.Equal(t, device.Sim(0), g.Of(x).Device())
	require.Equal(t, []float64{18, 18, 18}, numbers(t, g.Of(x)))
	a.Free()
	require.Zero(t, one.Stats().Live)
	require.Zero(t, two.Stats().Live)
}

func TestMovingToWhereItIsCopiesNothing(t *testing.T) {
	x := New([]int32{1})
	require.Same(t, x, To(x, device.Host()))
	require.False(t, To(x, device.NewSim(device.SimConfig{})).RequiresGrad())
	require.ErrorIs(t, To(x, nil).Err(), device.ErrNoDevice)
	require.ErrorIs(t, To(Failed(errKernel), device.Host()).Err(), errKernel)
	full := device.NewSim(device.SimConfig{Bytes: 2})
	require.ErrorIs(t, To(x, full).Err(), device.ErrMemory)
	require.ErrorContains(t, To(x, full).Err(), "device_test.go:")
}

func TestTheProgramsOfOneDeviceServeAnotherOfItsKind(t *testing.T) {
	builds := 0
	f := Define("count", func(g *Graph, x node) node { builds++; return g.Exp(x) })
	x := New([]float64{1, 2})
	for i := range 3 {
		require.NoError(t, f.Call(To(x, device.NewSim(device.SimConfig{Index: i}))).Err())
	}
	require.Equal(t, 1, builds)
	require.NoError(t, f.Call(x).Err())
	require.NoError(t, f.Call(New([]float64{1, 2}).RequireGrad()).Err())
	require.NoError(t, f.Call(New([]float32{1, 2})).Err())
	require.NoError(t, f.Call(New([]float64{1, 2}, 2, 1)).Err())
	require.Equal(t, 5, builds)
	require.NoError(t, f.Call(x).Err())
	require.Equal(t, 5, builds)
}

func TestShapesWithHugeExtentsAroundAnEmptyOneAreNotConfused(t *testing.T) {
	f := Define("sum", func(g *Graph, x node) node { return g.Sum(x, 0) })
	require.Equal(t, device.Shape{0}, f.Call(Zeros(device.Float32, 0, 0)).Shape())
	require.Equal(t, device.Shape{0}, f.Call(Zeros(device.Float32, 1<<48, 0)).Shape())
	require.ErrorIs(t, f.Call(Zeros(device.Float32, 0, 1<<55)).Err(), device.ErrMemory, "a sum over nothing has 2⁵⁵ zeros")
}
