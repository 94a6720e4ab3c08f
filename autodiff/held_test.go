package autodiff_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels/gpu"
)

// holding is work in a pass on a GPU.
type holding struct {
	*testing.T
	dev  *device.Accelerator
	pass *autodiff.Arena
	r    *rand.Rand
}

// input is the pass's.
func (h *holding) input(shape ...int) *autodiff.Tensor {
	x := autodiff.To(nn.Normal(h.r, device.Float32, 0, 1, shape...), h.dev)
	require.NoError(h, h.pass.Adopt(x))
	return x
}

// parameter is nobody's, and so not counted.
func (h *holding) parameter(shape ...int) *autodiff.Tensor {
	return autodiff.To(nn.Normal(h.r, device.Float32, 0, .1, shape...), h.dev).RequireGrad()
}

// held is how many bytes the pass has when the work is done and waits for its backward, in float32
// and in bfloat16. When the pass is freed nothing of it may be left.
func held(t *testing.T, work func(h *holding)) (wide, narrow int64) {
	t.Helper()
	for p, n := range map[gpu.Precision]*int64{gpu.Float32: &wide, gpu.BF16: &narrow} {
		dev, err := gpu.Config{Precision: p}.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
		require.NoError(t, err)
		h := &holding{t, dev, autodiff.NewArena("a pass"), rand.New(rand.NewPCG(1, 2))}
		work(h)
		*n = dev.Stats().LiveBytes
		h.pass.Free()
		require.NoError(t, dev.Check())
		require.Zero(t, dev.Stats().LiveBytes)
		require.NoError(t, dev.Close())
	}
	return wide, narrow
}

// There may be a copy of each weight as bfloat16, 2 bytes for each 4, but one for all calls that
// wait.
func TestOnAGPUBFloat16HoldsNoMoreForManyMicroBatchesThanFloat32AndOneCopyOfTheWeights(t *testing.T) {
	layer := autodiff.Define("layer", func(g *autodiff.Graph, x, w, b *gorgonia.Node) *gorgonia.Node { return g.GELU(g.Linear(x, w, b)) })
	for _, batches := range []int{1, 2, 8} {
		wide, narrow := held(t, func(h *holding) {
			w, b := h.parameter(64, 64), h.parameter(64)
			for range batches {
				require.NoError(t, layer.Call(layer.Call(h.input(4, 64), w, b), w, b).Err())
			}
		})
		t.Logf("%d micro-batches of 4 rows, one weight of 16384 bytes: %d bytes in float32, %d in bfloat16", batches, wide, narrow)
		require.LessOrEqual(t, narrow, wide+2*64*64)
	}
}

func TestOnAGPUBFloat16HoldsNoMoreForOpsOneByOneThanFloat32AndOneCopyOfTheWeights(t *testing.T) {
	for name, f := range map[string]nn.Activation{"ReLU": autodiff.ReLU, "GELU": autodiff.GELU, "Tanh": autodiff.Tanh} {
		wide, narrow := held(t, func(h *holding) {
			mlp := nn.NewMLP(h.r, f, 16, 16, 16, 16)
			require.NoError(t, nn.To(mlp, h.dev))
			x := h.input(128, 16)
			require.NoError(t, autodiff.Mul(mlp.Forward(x), autodiff.MatMul(x, h.parameter(16, 16))).Err()) // which both read x
		})
		t.Logf("an MLP of 3 layers with %s and a product, 128 rows of 16: %d bytes in float32, %d in bfloat16", name, wide, narrow)
		require.LessOrEqual(t, narrow, wide+4*2*16*16)
	}
}

// What a function keeps is mostly what its products make and read, and statistics are small. The
// batch is large, so that weights do not count.
func TestOnAGPUAFunctionSavesHalfInBFloat16WhereItsProductsMakeWhatItSaves(t *testing.T) {
	mlp := autodiff.Define("mlp", func(g *autodiff.Graph, x, w, b, v *gorgonia.Node) *gorgonia.Node {
		return g.MatMul(g.GELU(g.Linear(g.Tanh(g.MatMul(g.Tanh(g.MatMul(x, w)), w)), w, b)), v)
	})
	wide, narrow := held(t, func(h *holding) {
		w, b, v := h.parameter(16, 16), h.parameter(16), h.parameter(16, 2)
		require.NoError(t, mlp.Call(h.input(512, 16), w, b, v).Err())
	})
	const weights, input, result = 2 * (16*16 + 16*2), 4 * 512 * 16, 4 * 512 * 2
	t.Logf("%d bytes in float32 and %d in bfloat16, of which %d are the input and the result", wide, narrow, input+result)
	require.LessOrEqual(t, narrow-weights-input-result, (wide-input-result)/2)
}
