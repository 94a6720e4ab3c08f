package autodiff

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/gpu"
)

// The numbers are small integers, of which all products are exact in float32, but not in bfloat16:
// its gradients have more than 8 bits.
func TestOnAGPUTheGradientOfAWeightThatIsReadTwiceIsASumOfFloat32(t *testing.T) {
	r := rng(5)
	ints := func(from, to int, s device.Shape) *Tensor {
		v := make([]float32, s.Elems())
		for k := range v {
			v[k] = float32(from + r.IntN(to-from+1))
		}
		return New(v, s...)
	}
	const rows, n = 500, 8
	x, w := ints(0, 3, device.Shape{rows, n}), ints(-1, 1, device.Shape{n, n})
	dev := narrowDevice(t, gpu.BF16)
	for name, f := range map[string]*Func{
		"twice":  Define("f", func(g *Graph, x, w node) node { return g.MatMul(g.MatMul(x, w), w) }),
		"turned": Define("f", func(g *Graph, x, w node) node { return g.MatMulT(g.MatMul(x, w), w, false, true) }),
		"scaled": Define("f", func(g *Graph, x, w node) node { return g.MatMul(x, g.Scale(w, 3)) }),
		"cut": Define("f", func(g *Graph, x, w node) node {
			return g.Add(g.MatMul(x, g.Slice(w, 1, 0, n/2)), g.MatMul(g.Neg(x), g.Slice(w, 1, n/2-1, n-1)))
		}),
		"whole and cut": Define("f", func(g *Graph, x, w node) node {
			return g.Concat(1, g.MatMul(x, w), g.MatMul(x, g.Slice(w, 1, 0, n/2)))
		}),
		"joined": Define("f", func(g *Graph, x, w node) node { return g.MatMul(x, g.Concat(1, w, w)) }),
		"folded": Define("f", func(g *Graph, x, w node) node { return g.MatMul(x, g.Sum(g.Reshape(w, 2, n/2, n), 0)) }),
	} {
		t.Run(name, func(t *testing.T) {
			var gy *Tensor
			var grads [2][]float32
			for k, x := range []*Tensor{x, To(x, dev)} {
				if name == "folded" {
					x = Slice(x, 1, 0, n/2)
				}
				w := To(w.Detach(), x.dev).RequireGrad()
				y := f.Call(x, w)
				if gy == nil {
					gy = ints(0, 2, y.Shape())
				}
				g, err := BackwardWith(Options{Grads: []*Tensor{To(gy, x.dev)}}, y)
				require.NoError(t, err)
				grads[k] = floats(t, g.Of(w))
			}
			require.Equal(t, grads[0], grads[1])
			require.True(t, slices.ContainsFunc(grads[0], func(v float32) bool { return math.Float32bits(v)&0xffff != 0 }), "bfloat16 has all of %v", grads[0])
		})
	}
}
