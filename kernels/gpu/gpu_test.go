package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

func newGPU(t testing.TB, c ptx.Config) *device.Accelerator {
	d, err := gpu.On(testgpu.Open(t, c), device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// strange is an instruction that no backend knows.
type strange struct{ kernels.Unary }

func TestAnInstructionWithoutAKernelIsRefusedByName(t *testing.T) {
	b, err := backends.For(newGPU(t, ptx.Config{}))
	require.NoError(t, err)
	x := kernels.Type{Dtype: device.Float32, Shape: device.Shape{2}}
	_, err = b.Prepare(strange{}, []kernels.Type{x})
	require.ErrorIs(t, err, kernels.ErrNoBackend)
	require.ErrorContains(t, err, "Neg")
	_, err = b.Assemble([]kernels.Call{{Instr: strange{}, In: []kernels.Type{x}, Outs: []kernels.Place{{Len: 8}}, Ins: []kernels.Place{{Off: 16, Len: 8}}}}, []int{32}, []bool{true})
	var at *kernels.CallError
	require.ErrorAs(t, err, &at)
}
