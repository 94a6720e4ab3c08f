//go:build !race

package gpus

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
)

type node = *gorgonia.Node

// network is a loss of inputs, some of which are parameters, all of sizes that e4m3 can have.
type network struct {
	loss   *autodiff.Func
	shapes [][]int // of the parameters
	data   []*autodiff.Tensor
}

// theMLP classifies by a function of its inputs that it has to learn.
func theMLP() network {
	const rows, in, hidden, classes = 64, 32, 64, 16
	r := rand.New(rand.NewPCG(8, 20))
	x, of, labels := make([]float32, rows*in), make([]float32, in*classes), make([]int64, rows)
	for k := range x {
		x[k] = float32(r.NormFloat64())
	}
	for k := range of {
		of[k] = float32(r.NormFloat64())
	}
	for row := range labels {
		most := math.Inf(-1)
		for c := range classes {
			sum := 0.0
			for k := range in {
				sum += float64(x[row*in+k] * of[k*classes+c])
			}
			if sum > most {
				most, labels[row] = sum, int64(c)
			}
		}
	}
	return network{
		autodiff.Define("MLP", func(g *autodiff.Graph, w1, b1, w2, b2, w3, b3, x, y node) node {
			return g.CrossEntropy(g.Linear(g.GELU(g.Linear(g.GELU(g.Linear(x, w1, b1)), w2, b2)), w3, b3), y)
		}),
		[][]int{{in, hidden}, {hidden}, {hidden, hidden}, {hidden}, {hidden, classes}, {classes}},
		[]*autodiff.Tensor{autodiff.New(x, rows, in), autodiff.New(labels)},
	}
}

// theGPT is a block of a transformer, with its head.
func theGPT() network {
	const b, t, w, heads, vocabulary = 2, 16, 32, 2, 48
	r := rand.New(rand.NewPCG(8, 21))
	x, next := make([]float32, b*t*w), make([]int64, b*t)
	for k := range x {
		x[k] = float32(r.NormFloat64())
	}
	for k := range next {
		next[k] = r.Int64N(vocabulary)
	}
	return network{
		autodiff.Define("GPT", func(g *autodiff.Graph, gamma, beta, wqkv, bqkv, wo, bo, w1, b1, w2, b2, head, x, next node) node {
			qkv := g.Linear(g.LayerNorm(x, gamma, beta, 1e-5), wqkv, bqkv)
			split := func(k int) node { return g.Reshape(g.Slice(qkv, 2, k*w, (k+1)*w), b, t, heads, w/heads) }
			x = g.Add(x, g.Linear(g.Reshape(g.Attention(split(0), split(1), split(2), true), b, t, w), wo, bo))
			x = g.Add(x, g.Linear(g.GELU(g.Linear(x, w1, b1)), w2, b2))
			return g.CrossEntropy(g.MatMulT(g.Reshape(x, b*t, w), head, false, true), next)
		}),
		[][]int{{w}, {w}, {w, 3 * w}, {3 * w}, {w, w}, {w}, {w, 4 * w}, {4 * w}, {4 * w, w}, {w}, {vocabulary, w}},
		[]*autodiff.Tensor{autodiff.New(x, b, t, w), autodiff.New(next)},
	}
}

// on is the parameters as they begin, and the data, on a device.
func (n network) on(dev device.Device) (params, in []*autodiff.Tensor) {
	r := rand.New(rand.NewPCG(8, 22))
	for _, s := range n.shapes {
		v := make([]float32, device.Shape(s).Elems())
		for k := range v {
			if v[k] = float32(r.NormFloat64() / math.Sqrt(float64(s[0]))); len(s) == 1 {
				v[k] = float32(0.5 + r.Float64())
			}
		}
		params = append(params, autodiff.To(autodiff.New(v, s...), dev).RequireGrad())
	}
	in = append(in, params...)
	for _, x := range n.data {
		in = append(in, autodiff.To(x.Detach(), dev))
	}
	return params, in
}

// gradients are the loss and the gradients on a device.
func (n network) gradients(t *testing.T, dev device.Device) (loss float64, grads [][]float32) {
	params, in := n.on(dev)
	y := n.loss.Call(in...)
	g, err := autodiff.Backward(y)
	require.NoError(t, err)
	loss, err = y.Item()
	require.NoError(t, err)
	for _, p := range params {
		v, err := autodiff.Values[float32](g.Of(p))
		require.NoError(t, err)
		grads = append(grads, v)
	}
	return loss, grads
}

// apart is the length of a difference, as a share of the right one's.
func apart(got, want []float32) float64 {
	var off, size float64
	for k := range want {
		off, size = off+math.Pow(float64(got[k]-want[k]), 2), size+math.Pow(float64(want[k]), 2)
	}
	return math.Sqrt(off / size)
}

// fp8Driver is the GPU that tests run on where it is real, and else the interpreter with a library.
func fp8Driver(t *testing.T) cuda.Driver {
	if testgpu.Real() {
		return testgpu.Open(t, ptx.Config{})
	}
	return ptxtest.NewLibrary(t, ptx.Config{})
}

// fp8Ways are how often products were of e4m3, or why not.
func fp8Ways(dev device.Device) []kernels.Way {
	return slices.DeleteFunc(backend.Ways(dev), func(w kernels.Way) bool { return w.Work != "FP8 product" })
}

// A number is rounded to e4m3 by at most a 16th, on average by a 45th. A gradient has gone through
// several products of such numbers: its difference from float32's is at most so much of its length.
const mostApart, mostLossApart = 0.12, 0.03

func TestGradientsInE4M3AreOffByItsRounding(t *testing.T) {
	for name, n := range map[string]network{"MLP": theMLP(), "GPT": theGPT()} {
		t.Run(name, func(t *testing.T) {
			want, right := n.gradients(t, device.Host())
			driver := fp8Driver(t)
			hopper := driver.Info().Arch/10 == 9
			dev, err := gpu.Config{Precision: gpu.FP8, FP8From: 1}.On(driver, device.CUDA(0))
			require.NoError(t, err)
			loss, grads := n.gradients(t, dev)
			require.InEpsilon(t, want, loss, mostLossApart)
			least, most := 1.0, 0.0
			for k := range right {
				by := apart(grads[k], right[k])
				require.LessOrEqual(t, by, mostApart, "parameter %d", k)
				least, most = min(least, by), max(most, by)
			}
			ways := fp8Ways(dev)
			t.Logf("the loss is %g, in float32 %g; gradients are %.3f to %.3f apart; %v", loss, want, least, most, ways)
			if quantized := slices.ContainsFunc(ways, func(w kernels.Way) bool { return w.By == "library" }); quantized {
				require.Greater(t, most, 0.01, "it is not bfloat16")
			} else {
				require.True(t, testgpu.Real() && (!hopper || strings.Contains(ways[0].Why, "librar")), "%v", ways)
			}
			require.NoError(t, dev.Close())
		})
	}
}

func TestAnMLPInE4M3LearnsWhatItDoesInBFloat16(t *testing.T) {
	n, losses := theMLP(), map[gpu.Precision][]float64{}
	for _, p := range []gpu.Precision{gpu.BF16, gpu.FP8} {
		dev, err := gpu.Config{Precision: p, FP8From: 1}.On(fp8Driver(t), device.CUDA(0))
		require.NoError(t, err)
		params, in := n.on(dev)
		opt, err := optim.New(optim.AdamW{LR: 0.01}, params...)
		require.NoError(t, err)
		for range 16 {
			y := n.loss.Call(in...)
			g, err := autodiff.Backward(y)
			require.NoError(t, err)
			require.NoError(t, opt.Step(g.All()))
			loss, err := y.Item()
			require.NoError(t, err)
			losses[p] = append(losses[p], loss)
		}
		require.NoError(t, dev.Close())
	}
	t.Log(losses)
	last := len(losses[gpu.BF16]) - 1
	require.Less(t, losses[gpu.BF16][last], losses[gpu.BF16][0]/10, "it learns")
	require.InDelta(t, losses[gpu.BF16][last], losses[gpu.FP8][last], 0.03*losses[gpu.BF16][0])
	require.NotEqual(t, losses[gpu.BF16], losses[gpu.FP8])
}

func TestAFunctionExplainsWhichOfItsProductsAreInE4M3(t *testing.T) {
	dev, err := gpu.Config{Precision: gpu.FP8, FP8From: 32 * 64 * 64}.On(ptxtest.NewLibrary(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	_, in := theMLP().on(dev)
	var text strings.Builder
	require.NoError(t, theMLP().loss.Explain(&text, in...))
	before := fp8Ways(dev)
	require.Regexp(t, `MatMul a·b \+ Add[^\n]* in e4m3 `, text.String())
	require.Regexp(t, `MatMul a·b \+ Add[^\n]* in bfloat16, as it is small `, text.String())
	require.Equal(t, before, fp8Ways(dev), "explaining counts nothing")
	require.NoError(t, dev.Close())

	dev, err = gpu.Config{Precision: gpu.BF16}.On(ptxtest.NewLibrary(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	_, in = theMLP().on(dev)
	text.Reset()
	require.NoError(t, theMLP().loss.Explain(&text, in...))
	require.NotRegexp(t, " in (e4m3|bfloat16)", text.String())
	require.NoError(t, dev.Close())
}
