package autodiff

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func attentionCases() []opCase {
	var cs []opCase
	for _, causal := range []bool{false, true} {
		body := func(g *Graph, in []node) node { return g.Attention(in[0], in[1], in[2], causal) }
		for _, s := range [][2][]int{
			{{2, 3, 2, 4}, {2, 3, 2, 4}}, {{2, 3, 2, 4}, {2, 5, 2, 4}}, {{1, 1, 1, 1}, {1, 1, 1, 1}}, {{1, 40, 1, 2}, {1, 40, 1, 2}},
			{{0, 2, 1, 3}, {0, 2, 1, 3}}, {{1, 0, 2, 3}, {1, 2, 2, 3}}, {{1, 2, 0, 3}, {1, 2, 0, 3}},
		} {
			cs = append(cs, opCase{fmt.Sprint("Attention ", s, causal), fixed(normal, s[0], s[1], s[1]), body, nil})
		}
		cs = append(cs, opCase{fmt.Sprint("Attention of one tensor ", causal), fixed(normal, []int{2, 3, 2, 4}), func(g *Graph, in []node) node {
			return g.Attention(in[0], in[0], in[0], causal)
		}, nil}, opCase{fmt.Sprint("Attention of slices ", causal), fixed(normal, []int{2, 3, 24}), sliced(func(g *Graph, q, k, v node) node {
			return g.Attention(q, k, v, causal)
		}), nil})
	}
	return cs
}

// sliced gives a function the thirds of one tensor (b, t, 3·heads·4) as queries, keys and values of
// two heads.
func sliced(f func(g *Graph, q, k, v node) node) func(g *Graph, in []node) node {
	return func(g *Graph, in []node) node {
		s := g.Type(in[0]).Shape
		var x [3]node
		for k := range x {
			x[k] = g.Reshape(g.Slice(in[0], 2, k*s[2]/3, (k+1)*s[2]/3), s[0], s[1], 2, -1)
		}
		return f(g, x[0], x[1], x[2])
	}
}

// composed is attention of the ops that it stands for; the mask is added to the scores.
func composed(g *Graph, q, k, v, mask node) node {
	heads := func(x node) node { return g.Transpose(x, 0, 2, 1, 3) }
	d := g.Type(q).Shape[3]
	scores := g.Add(g.Scale(g.MatMulT(heads(q), heads(k), false, true), 1/math.Sqrt(float64(d))), mask)
	return heads(g.MatMul(g.Softmax(scores, -1), heads(v)))
}

func TestAttentionIsTheCompositionThatItStandsFor(t *testing.T) {
	for seed := range uint64(12) {
		r := rng(seed)
		b, rows, d, causal := 1+r.IntN(2), 1+r.IntN(100), 1+r.IntN(40), r.IntN(2) == 0
		args := []arg{normal(r, b, rows, 6*d), values(r, func(i int) float64 {
			if causal && i%rows > i/rows {
				return math.Inf(-1)
			}
			return 0
		}, rows, rows)}
		whole := opCase{"whole", nil, sliced(func(g *Graph, q, k, v node) node { return g.Attention(q, k, v, causal) }), nil}
		parts := opCase{"parts", nil, func(g *Graph, in []node) node {
			return sliced(func(g *Graph, q, k, v node) node { return composed(g, q, k, v, in[1]) })(g, in)
		}, nil}
		for dtype, tol := range map[device.Dtype]float64{device.Float32: 1e-5, device.Float64: 1e-12} {
			args[1].dtype = dtype // which has no gradient then
			f, of := whole.compiledFunc(), parts.compiledFunc()
			got := runTensors(t, args, dtype, here, func(in []*Tensor) *Tensor { return f.Call(in...) })
			want := runTensors(t, args, dtype, here, func(in []*Tensor) *Tensor { return of.Call(in...) })
			requireOutcome(t, want.shape, want.y, want.grads, got, tol, fmt.Sprint("seed ", seed))
		}
	}
}

func TestTheLogarithmsOfAttentionHaveNoGradient(t *testing.T) {
	f := Define("sums", func(g *Graph, x node) node { return g.ApplyAll(kernels.Attention{}, x, x, x)[1] })
	require.ErrorIs(t, f.Call(NormalFrom(rng(1), 1, 1, 2, 1, 3).RequireGrad()).Err(), ErrGradient)
}

func TestAttentionRefusesHeadsThatDoNotMatchAndCausalRowsThatSeeNothing(t *testing.T) {
	f := Define("attention", func(g *Graph, q, k node) node { return g.Attention(q, k, k, true) })
	q := NormalFrom(rng(1), 1, 1, 3, 2, 4)
	require.ErrorContains(t, f.Call(q, NormalFrom(rng(1), 1, 1, 3, 3, 4)).Err(), "expected q (b, t, heads, d)")
	require.ErrorContains(t, f.Call(q, NormalFrom(rng(1), 1, 1, 2, 2, 4)).Err(), "the first would see none")
}
