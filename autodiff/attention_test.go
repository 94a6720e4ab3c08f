package autodiff

import (
	"fmt"
	"math"
	"strings"
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

// TestWhatFewAskOfAttentionIsTheCompositionThatItStandsFor has heads share keys, a mask that hides
// some, and weights dropped, as [Graph.Dropout] does under the same key.
func TestWhatFewAskOfAttentionIsTheCompositionThatItStandsFor(t *testing.T) {
	for seed := range uint64(8) {
		r := rng(seed)
		b, rows, s, d, keys, share := 1+r.IntN(2), 1+r.IntN(40), 4*(1+r.IntN(12)), 1+r.IntN(9), 1+r.IntN(2), 1+r.IntN(3)
		i := kernels.Attention{Masked: true, Drop: 0.25}
		args := []arg{normal(r, b, rows, keys*share, d), normal(r, b, s, keys, d), normal(r, b, s, keys, d), values(r, func(at int) float64 {
			if at%s != s-1 && r.IntN(3) == 0 {
				return math.Inf(-1)
			}
			return r.NormFloat64()
		}, b, 1, rows, s), ids(r, device.Int64, 1<<40, 2)}
		whole := opCase{"whole", nil, func(g *Graph, in []node) node { return g.AttentionBy(i, in[0], in[1], in[2], in[3:]...) }, nil}
		parts := opCase{"parts", nil, func(g *Graph, in []node) node {
			heads := func(x node) node { return g.Transpose(x, 0, 2, 1, 3) }
			spread := func(x node) node { // a head for each of those that share it
				y := g.BroadcastTo(g.Reshape(heads(x), b, keys, 1, s, d), b, keys, share, s, d)
				return g.Reshape(y, b, keys*share, s, d)
			}
			scores := g.Add(g.Scale(g.MatMulT(heads(in[0]), spread(in[1]), false, true), 1/math.Sqrt(float64(d))), in[3])
			return heads(g.MatMul(g.Dropout(g.Softmax(scores, -1), in[4], i.Drop), spread(in[2])))
		}, nil}
		args[3].frozen = true
		for dtype, tol := range map[device.Dtype]float64{device.Float32: 1e-5, device.Float64: 1e-12} {
			f, of := whole.compiledFunc(), parts.compiledFunc()
			want := runTensors(t, args, dtype, here, func(in []*Tensor) *Tensor { return of.Call(in...) })
			got := runTensors(t, args, dtype, here, func(in []*Tensor) *Tensor { return f.Call(in...) })
			requireOutcome(t, want.shape, want.y, want.grads, got, tol, fmt.Sprint("seed ", seed))
			got = runTensors(t, args, dtype, here, func(in []*Tensor) *Tensor { return AttentionBy(i, in[0], in[1], in[2], in[3:]...) })
			requireOutcome(t, want.shape, want.y, want.grads, got, tol, fmt.Sprint("eager, seed ", seed))
		}
	}
}

func TestAMaskHasNoGradientAndIsReadWhereItLies(t *testing.T) {
	i := kernels.Attention{Masked: true}
	f := Define("masked", func(g *Graph, q, m node) node {
		return g.AttentionBy(i, q, q, q, g.BroadcastTo(g.Reshape(m, 2, 1, 1, 3), 2, 4, 3, 3))
	})
	q, m := NormalFrom(rng(1), 1, 2, 3, 4, 5), New([]float32{0, 0, 0, 0, float32(math.Inf(-1)), 0}, 2, 3)
	require.NoError(t, f.Call(q.RequireGrad(), m).Err())
	require.ErrorIs(t, f.Call(q, New([]float32{0, 0, 0, 0, 1, 0}, 2, 3).RequireGrad()).Err(), ErrGradient)
	var text strings.Builder
	require.NoError(t, f.Explain(&text, q, m))
	require.NotContains(t, text.String(), "BroadcastTo(")
	require.Contains(t, text.String(), "masked) (4 by view)")
	require.ErrorContains(t, AttentionBy(i, q, q, q).Err(), "expected 4 operands, got 3")
	require.ErrorContains(t, AttentionBy(i, q, q, q, nil).Err(), "nil")
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
