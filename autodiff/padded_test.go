package autodiff

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
)

// heads are the ends of models, which make a loss of x (2, 6, 16), a weight and a bias.
func heads(classes int) map[string]*Func {
	flat := func(g *Graph, x *gorgonia.Node) *gorgonia.Node { return g.Reshape(x, 12, 16) }
	return map[string]*Func{
		"tied": Define("tied", func(g *Graph, x, w, b, next *gorgonia.Node) *gorgonia.Node {
			return g.CrossEntropy(g.MatMulT(flat(g, x), g.Transpose(w), false, true), next)
		}),
		"linear": Define("linear", func(g *Graph, x, w, b, next *gorgonia.Node) *gorgonia.Node {
			return g.CrossEntropy(g.Linear(flat(g, x), w, b), next)
		}),
		"batch": Define("batch", func(g *Graph, x, w, b, next *gorgonia.Node) *gorgonia.Node {
			return g.CrossEntropy(g.Reshape(g.Linear(x, w, b), 12, classes), next)
		}),
	}
}

func headInputs(classes int) []*Tensor {
	next := make([]int64, 12)
	for k := range next {
		next[k] = int64(k*k*31+7) % int64(classes)
	}
	next[3] = int64(classes - 1)
	return []*Tensor{narrowTensor(1, 2, 6, 16), narrowTensor(2, 16, classes), narrowTensor(3, classes), New(next)}
}

func TestOnAGPULogitsOfAnOddNumberOfClassesLieInLongerRows(t *testing.T) {
	dev := narrowDevice(t, gpu.BF16)
	for _, classes := range []int{510, 511, 512, 513, 519, 520} {
		for name, f := range heads(classes) {
			t.Run(fmt.Sprint(name, classes), func(t *testing.T) {
				in := headInputs(classes)
				there := movedTo(dev, in)
				var text strings.Builder
				require.NoError(t, f.Explain(&text, there...))
				padded := classes > 512 && classes%8 != 0
				require.Equal(t, padded, strings.Contains(text.String(), fmt.Sprintf("CrossEntropy(classes=%d)", classes)), text.String())
				var losses [2]float64
				var grads [2][]*Tensor
				for k, in := range [][]*Tensor{in, there} {
					y := f.Call(in...)
					g, err := Backward(y)
					require.NoError(t, err)
					losses[k], err = y.Item()
					require.NoError(t, err)
					for _, x := range in[:3] {
						grads[k] = append(grads[k], g.Of(x))
					}
				}
				require.InEpsilon(t, losses[0], losses[1], 2e-3)
				for k, want := range grads[0] {
					if name == "tied" && k == 2 {
						require.Nil(t, want)
						continue
					}
					requireNear(t, want, grads[1][k], 1.5e-2)
				}
			})
		}
	}
}

// The columns that make rows longer are no classes.
func TestOnAGPUALabelAmongThePaddingIsNotThere(t *testing.T) {
	in := headInputs(513)
	in[3] = New([]int64{0, 0, 0, 0, 0, 0, 0, 513, 0, 0, 0, 0})
	in = movedTo(narrowDevice(t, gpu.BF16), in)
	y := heads(513)["linear"].Call(in...)
	_, err := y.Item()
	var index *kernels.IndexError
	require.ErrorAs(t, err, &index)
	require.Equal(t, []int64{513, 7, 513}, []int64{index.ID, int64(index.At), int64(index.N)})
}

// What is not finite in a row touches that row alone, and no padding.
func TestOnAGPUPaddingStaysZeroBesideWhatIsNotFinite(t *testing.T) {
	in := headInputs(513)
	v, err := Values[float32](in[0])
	require.NoError(t, err)
	v[2*16] = float32(math.Inf(1))
	in[0] = New(v, 2, 6, 16).RequireGrad()
	there := movedTo(narrowDevice(t, gpu.BF16), in)
	f := Define("logits", func(g *Graph, x, w, b *gorgonia.Node) *gorgonia.Node {
		return g.Sum(g.Slice(g.Reshape(g.Linear(x, w, b), 12, 513), 0, 3, 12))
	})
	g, err := Backward(f.Call(there[:3]...))
	require.NoError(t, err)
	want, err := Backward(f.Call(in[:3]...))
	require.NoError(t, err)
	requireNear(t, want.Of(in[0]), g.Of(there[0]), 1.5e-2)
}

func TestOnAGPUProductsOfAnySizesAreThoseOfLongerRows(t *testing.T) {
	dev, r := narrowDevice(t, gpu.BF16), rng(77)
	sizes := []int{3, 8, 511, 512, 513, 520}
	for range 40 {
		m, k, n := sizes[r.IntN(6)], sizes[r.IntN(6)], sizes[r.IntN(6)]
		if m*k*n > 1<<22 {
			continue
		}
		ta, tb := r.IntN(2) == 0, r.IntN(2) == 0
		a, b := device.Shape{m, k}, device.Shape{k, n}
		if ta {
			a = device.Shape{k, m}
		}
		if tb {
			b = device.Shape{n, k}
		}
		if r.IntN(3) == 0 && !ta {
			a = append(device.Shape{2}, a...)
		}
		f := Define("product", func(g *Graph, x, y *gorgonia.Node) *gorgonia.Node {
			z := g.MatMulT(x, y, ta, tb)
			return g.Mean(g.Mul(z, g.Tanh(z)))
		})
		in := []*Tensor{narrowTensor(r.Uint64(), a...), narrowTensor(r.Uint64(), b...)}
		there := movedTo(dev, in)
		want, err := Backward(f.Call(in...))
		require.NoError(t, err)
		got, err := Backward(f.Call(there...))
		require.NoError(t, err)
		for j := range in {
			requireNear(t, want.Of(in[j]), got.Of(there[j]), 2e-2)
		}
	}
}
