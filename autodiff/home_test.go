package autodiff

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// accelerator is a GPU as the interpreter has it.
func accelerator(t *testing.T, index int) *device.Accelerator {
	d, err := gpu.On(ptxtest.New(ptx.Config{}), device.CUDA(index))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestAFunctionServesEachAcceleratorWithItsOwnPrograms(t *testing.T) {
	f := Define("f", func(g *Graph, x, w node) node { return g.Sum(g.Mul(g.Tanh(x), w)) })
	one := func(dev device.Device) (value float64, grad []float32) {
		x := To(New([]float32{0.5, -1, 2}, 3), dev).RequireGrad()
		w := To(New([]float32{3, 4, 5}, 3), dev)
		loss := f.Call(x, w)
		grads, err := Backward(loss)
		require.NoError(t, err)
		value, err = loss.Item()
		require.NoError(t, err)
		grad, err = Values[float32](grads.Of(x))
		require.NoError(t, err)
		return value, grad
	}
	want, slopes := one(device.Host())
	for _, dev := range []device.Device{accelerator(t, 0), accelerator(t, 1), accelerator(t, 0), device.Host()} { // two have one name
		got, grad := one(dev)
		require.InDelta(t, want, got, 1e-5)
		require.InDeltaSlice(t, slopes, grad, 1e-5)
	}
}
