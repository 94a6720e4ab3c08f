package gpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/kernels/kerneltest"
)

func newGPU(t testing.TB, c ptx.Config) *device.Accelerator {
	d, err := gpu.On(ptx.New(c), device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// missing are the families of instructions that have no kernels yet.
func missing() []string { return nil }

func TestEveryInstructionAgreesWithItsDefinition(t *testing.T) {
	d := newGPU(t, ptx.Config{})
	kerneltest.RunFew(t, func(*testing.T) device.Device { return d }, missing()...)
}

func TestAnInstructionWithoutAKernelIsRefusedByName(t *testing.T) {
	b, err := kernels.For(newGPU(t, ptx.Config{}))
	require.NoError(t, err)
	for _, family := range missing() {
		i, in := kerneltest.Case(rand.New(rand.NewPCG(1, 1)), family)
		var types []kernels.Type
		for _, x := range in {
			types = append(types, x.Type)
		}
		_, err := b.Prepare(i, types)
		require.ErrorIs(t, err, kernels.ErrNoBackend)
		require.ErrorContains(t, err, i.String())
	}
}
