package gputest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// Kind is a kind of accelerator.
type Kind struct {
	Name string
	ID   func(i int) device.ID
	// Make makes an accelerator of so many bytes (0: enough), which must be unused when t ends.
	Make func(t testing.TB, i, bytes int) device.Device
}

// Each runs a test with every kind: accelerators that only lie apart from the host, and the GPUs of
// EachGPU.
func Each(t *testing.T, run func(t *testing.T, k Kind)) {
	sim := func(_ testing.TB, i, bytes int) device.Device {
		return device.NewSim(device.SimConfig{Index: i, Bytes: int64(bytes)})
	}
	t.Run("sim", func(t *testing.T) { run(t, Kind{"sim", device.Sim, sim}) })
	EachGPU(t, run)
}

// EachGPU runs a test with GPUs as the interpreter has them, whose work is done at once, or as late
// as may be.
func EachGPU(t *testing.T, run func(t *testing.T, k Kind)) {
	gpus := func(t testing.TB, i, bytes int) device.Device { return GPU(t, i, ptx.Config{Bytes: bytes}) }
	late := func(t testing.TB, i, bytes int) device.Device {
		return GPU(t, i, ptx.Config{Bytes: bytes, Late: rand.New(rand.NewPCG(uint64(i), 3))})
	}
	for _, k := range []Kind{{"gpu", device.CUDA, gpus}, {"late gpu", device.CUDA, late}} {
		t.Run(k.Name, func(t *testing.T) { run(t, k) })
	}
}

// GPU makes a GPU as the interpreter has them, which must be unused when t ends.
func GPU(t testing.TB, i int, c ptx.Config) *device.Accelerator {
	m := ptxtest.New(c)
	d, err := gpu.On(m, device.CUDA(i))
	require.NoError(t, err)
	ptxtest.Watch(t, m, d)
	return d
}
