package autodiff

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels/gpu"
)

// narrowBlock is a transformer's block, and the loss of what it makes.
var narrowBlock = Define("block", func(g *Graph, x, gamma, beta, wqkv, bqkv, wo, bo, w1, b1, w2, b2, head, next *gorgonia.Node) *gorgonia.Node {
	const b, t, w, heads = 2, 16, 16, 2
	qkv := g.Linear(g.LayerNorm(x, gamma, beta, 1e-5), wqkv, bqkv)
	split := func(k int) *gorgonia.Node {
		return g.Reshape(g.Slice(qkv, 2, k*w, (k+1)*w), b, t, heads, w/heads)
	}
	x = g.Add(x, g.Linear(g.Reshape(g.Attention(split(0), split(1), split(2), true), b, t, w), wo, bo))
	x = g.Add(x, g.Linear(g.GELU(g.Linear(x, w1, b1)), w2, b2))
	return g.CrossEntropy(g.MatMulT(g.Reshape(x, b*t, w), head, false, true), next)
})

// narrowInputs are the block's, of numbers that bfloat16 has.
func narrowInputs(r *rand.Rand) (in []*Tensor) {
	for _, s := range [][]int{{2, 16, 16}, {16}, {16}, {16, 48}, {48}, {16, 16}, {16}, {16, 64}, {64}, {64, 16}, {16}, {24, 16}} {
		in = append(in, narrowTensor(r.Uint64(), s...))
	}
	next := make([]int64, 32)
	for k := range next {
		next[k] = r.Int64N(24)
	}
	return append(in, New(next))
}

// narrowDevice is on the GPU that tests run on where that multiplies bfloat16.
func narrowDevice(t *testing.T, p gpu.Precision) device.Device {
	d := testgpu.Open(t, ptx.Config{Races: true})
	if d.Info().Arch < 80 {
		require.NoError(t, d.Close())
		d = ptxtest.New(ptx.Config{Races: true})
	}
	dev, err := gpu.Config{Precision: p}.On(d, device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// lossAndGradients computes them where the inputs lie.
func lossAndGradients(t *testing.T, in []*Tensor) (loss float64, grads []*Tensor) {
	y := narrowBlock.Call(in...)
	g, err := Backward(y)
	require.NoError(t, err)
	loss, err = y.Item()
	require.NoError(t, err)
	for _, x := range in[:len(in)-1] {
		grads = append(grads, g.Of(x))
	}
	return loss, grads
}

func movedTo(dev device.Device, in []*Tensor) (out []*Tensor) {
	for _, x := range in {
		y := To(x.Detach(), dev)
		if x.Dtype().IsFloat() {
			y.RequireGrad()
		}
		out = append(out, y)
	}
	return out
}

func TestOnAGPUGradientsOfAFunctionThatKeepsBFloat16AreOffByRoundingAlone(t *testing.T) {
	in := narrowInputs(rng(3))
	want, grads := lossAndGradients(t, in)
	got, narrow := lossAndGradients(t, movedTo(narrowDevice(t, gpu.BF16), in))
	require.InEpsilon(t, want, got, 2e-3)
	for k := range grads {
		requireNear(t, grads[k], narrow[k], 1.5e-2)
	}
}

func TestOnAGPUAFunctionSavesForItsBackwardInTheFormOfItsPrecision(t *testing.T) {
	in := narrowInputs(rng(4))
	saved := func(dev device.Device) string {
		var b strings.Builder
		require.NoError(t, narrowBlock.Explain(&b, movedTo(dev, in)...))
		_, text, _ := strings.Cut(b.String(), "saved for the backward: ")
		text, _, _ = strings.Cut(text, "\n")
		return text
	}
	wide := saved(narrowDevice(t, gpu.Float32))
	require.NotContains(t, wide, "bfloat16")
	narrow := saved(narrowDevice(t, gpu.BF16))
	require.Contains(t, narrow, "bfloat16(2, 16, 64)", "what GELU makes, and reads")
	require.Contains(t, narrow, "bfloat16(32, 24)", "logits")
	require.Contains(t, narrow, "bfloat16(16, 48)", "weights, which are rounded once")
	require.Contains(t, narrow, "; 23.5 KiB beside the inputs, of which calls that wait for their backward share 6.8 KiB, their weights as bfloat16")
	require.True(t, strings.HasSuffix(wide, "; 31.2 KiB beside the inputs"), wide)
	require.NotContains(t, narrow, "input 3,")
	require.Contains(t, wide, "input 3,")
	require.Contains(t, narrow, "bfloat16(2, 16, 48)", "queries, keys and values")
	require.Contains(t, narrow, " float32(2, 2, 16)", "attention's sums")
	require.Contains(t, narrow, " float32(2, 16, 16)", "the stream of residuals")
}

// The block has five weights that products read.
func TestOnAGPUABlockRoundsItsWeightsOnceForAllCallsThatWait(t *testing.T) {
	in := movedTo(narrowDevice(t, gpu.BF16), narrowInputs(rng(5)))
	c, back, err := narrowBlock.served(in)
	require.NoError(t, err)
	require.Nil(t, c.Shared.Load(), "nobody has asked for it")
	first, second := narrowBlock.Call(in...), narrowBlock.Call(in...)
	require.NoError(t, second.Err())
	require.Equal(t, copiesOf(first), copiesOf(second))
	for want, p := range map[int][]*program.Program{5: {c.Forward}, 0: {c.Shared.Load(), back}} {
		for _, p := range p {
			var text strings.Builder
			require.NoError(t, p.Explain(&text))
			require.Equal(t, want, strings.Count(text.String(), "\n  copy "), text.String())
		}
	}
}

// A batch is read by the first product, and by the gradient of its weight.
func TestOnAGPUABatchIsRoundedOnceWhereItsCopyIsPaidFor(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	f := Define("MLP", func(g *Graph, x, w, v *gorgonia.Node) *gorgonia.Node {
		return g.Sum(g.MatMul(g.GELU(g.MatMul(x, w)), v))
	})
	for hidden, form := range map[int]string{16: "bfloat16(64, 8)", 2: "float32(64, 8)"} { // what GELU reads and makes is 4 times as large as the batch, or half as large
		in := movedTo(dev, []*Tensor{narrowTensor(1, 64, 8), narrowTensor(2, 8, hidden), narrowTensor(3, hidden, 3)})
		in[0] = in[0].Detach()
		_, back, err := f.served(in)
		require.NoError(t, err)
		var text strings.Builder
		require.NoError(t, back.Explain(&text))
		require.Regexp(t, `given .* `+regexp.QuoteMeta(form), text.String())
		var grads [2]*Tensor
		for k, in := range [][]*Tensor{movedTo(device.Host(), in), in} {
			g, err := Backward(f.Call(in...))
			require.NoError(t, err)
			grads[k] = g.Of(in[1])
		}
		requireNear(t, grads[0], grads[1], 1.5e-2)
	}
}

// Each set of results has a backward of its own, and all read what one forward saved.
func TestOnAGPUEveryBackwardReadsWhatTheForwardSavedInItsForm(t *testing.T) {
	f := Define("two", func(g *Graph, x, w, v *gorgonia.Node) (a, b, c *gorgonia.Node) {
		h := g.Tanh(g.MatMul(x, w))
		return g.MatMul(h, v), g.Sum(g.Mul(h, h)), g.MatMulT(x, g.Reshape(v, 8, 8), false, true)
	})
	in := []*Tensor{narrowTensor(1, 8, 8), narrowTensor(2, 8, 8), narrowTensor(3, 8, 8)}
	there := movedTo(narrowDevice(t, gpu.BF16), in)
	for mask := 1; mask < 8; mask++ {
		var grads [2][]*Tensor
		for k, in := range [][]*Tensor{in, there} {
			out := f.CallAll(in...)
			require.Len(t, out, 3)
			var loss *Tensor
			for n, y := range out {
				if mask>>n&1 == 0 {
					continue
				}
				if loss == nil {
					loss = Sum(y)
				} else {
					loss = Add(loss, Sum(y))
				}
			}
			g, err := Backward(loss)
			require.NoError(t, err)
			for _, x := range in {
				grads[k] = append(grads[k], g.Of(x))
			}
		}
		for n, want := range grads[0] {
			if want == nil {
				require.Nil(t, grads[1][n])
				continue
			}
			requireNear(t, want, grads[1][n], 2e-2)
		}
	}
}

func narrowTensor(seed uint64, shape ...int) *Tensor {
	r := rng(seed)
	v := make([]float32, device.Shape(shape).Elems())
	for k := range v {
		v[k] = float32(r.IntN(255)-127) / 256
	}
	return New(v, shape...).RequireGrad()
}

// requireNear compares by the length of the difference.
func requireNear(t *testing.T, want, got *Tensor, tol float64) {
	t.Helper()
	w, err := Values[float32](want)
	require.NoError(t, err)
	g, err := Values[float32](got)
	require.NoError(t, err)
	off, size := 0.0, 0.0
	for k := range w {
		off, size = off+math.Pow(float64(w[k]-g[k]), 2), size+math.Pow(float64(w[k]), 2)
	}
	require.LessOrEqual(t, math.Sqrt(off), tol*math.Sqrt(size))
}
