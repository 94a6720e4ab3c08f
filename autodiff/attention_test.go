package autodiff

import (
	"errors"
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

func TestAttentionSaysAllThatIsWrongWithWhatItIsGiven(t *testing.T) {
	f := func(shape ...int) *Tensor { return Zeros(device.Float32, shape...) }
	q, k, key := f(2, 3, 4, 8), f(2, 5, 2, 8), RandomKey(1, 2)
	mask := f(2, 1, 3, 5)
	both := kernels.Attention{Masked: true, Drop: 0.5}
	for name, c := range map[string]struct {
		of   kernels.Attention
		in   []*Tensor
		want []string
	}{
		"no key":                 {kernels.Attention{Drop: 0.5}, []*Tensor{q, k, k}, []string{"expected 4 operands, got 3: q, k, v, and a random key for what is dropped"}},
		"no mask":                {kernels.Attention{Masked: true}, []*Tensor{q, k, k}, []string{"expected 4 operands, got 3: q, k, v, a mask"}},
		"neither":                {both, []*Tensor{q, k, k}, []string{"expected 5 operands, got 3: q, k, v, a mask, and a random key"}},
		"a key that nobody uses": {kernels.Attention{}, []*Tensor{q, k, k, key}, []string{"expected 3 operands, got 4: q, k, v"}},
		"a nil key":              {kernels.Attention{Drop: 0.5}, []*Tensor{q, k, k, nil}, []string{"operand 3 is a nil tensor"}},
		"the key first":          {both, []*Tensor{q, k, k, key, mask}, []string{"the mask comes before the key"}},
		"a key of floats":        {kernels.Attention{Drop: 0.5}, []*Tensor{q, k, k, f(2)}, []string{"the key must be int64(2), a seed and a counter, got float32(2)"}},
		"a long key":             {both, []*Tensor{q, k, k, mask, Zeros(device.Int64, 3)}, []string{"the key must be int64(2), a seed and a counter, got int64(3)"}},
		"a mask of ids":          {kernels.Attention{Masked: true}, []*Tensor{q, k, k, Zeros(device.Int64, 2, 1, 3, 5)}, []string{"operand 3: expected float32 or float64, got int64"}},
		"a mask of doubles":      {kernels.Attention{Masked: true}, []*Tensor{q, k, k, Zeros(device.Float64, 2, 1, 3, 5)}, []string{"operand 3: the dtypes differ, float64 and float32 of q; cast one of them"}},
		"a mask of rows":         {kernels.Attention{Masked: true}, []*Tensor{q, k, k, f(3, 5)}, []string{"expected a mask (b, heads, t, s), any of which may be 1: (2, 4, 3, 5), got (3, 5)"}},
		"a mask of heads of k":   {kernels.Attention{Masked: true}, []*Tensor{q, k, k, f(2, 2, 3, 5)}, []string{"(2, 4, 3, 5), got (2, 2, 3, 5)"}},
		"a rate below 0":         {kernels.Attention{Drop: -0.1}, []*Tensor{q, k, k, key}, []string{"a probability of -0.1, expected one from 0 to 1"}},
		"a rate above 1":         {kernels.Attention{Drop: 1.5}, []*Tensor{q, k, k, key}, []string{"a probability of 1.5, expected one from 0 to 1"}},
		"no rate":                {kernels.Attention{Drop: math.NaN()}, []*Tensor{q, k, k, key}, []string{"a probability of NaN, expected one from 0 to 1"}},
		"heads that none divide": {kernels.Attention{}, []*Tensor{q, f(2, 5, 3, 8), f(2, 5, 3, 8)}, []string{"or as many heads as divide those of q"}},
		"much": {kernels.Attention{Causal: true, Masked: true, Drop: 2}, []*Tensor{f(2, 7, 4, 8), k, k, f(2, 7), f(3)}, []string{
			"a probability of 2, expected one from 0 to 1; ", "the key must be int64(2), a seed and a counter, got float32(3); ",
			"of 7 causal rows the first would see none of 5; ", "expected a mask (b, heads, t, s), any of which may be 1: (2, 4, 7, 5), got (2, 7)",
		}},
		"more": {both, []*Tensor{q, f(2, 5), k, key}, []string{"expected 5 operands, got 4", "; operand 3: expected float32 or float64, got int64", "; expected q (b, t, heads, d)"}},
	} {
		t.Run(name, func(t *testing.T) {
			line := lineHere(1)
			err := AttentionBy(c.of, c.in[0], c.in[1], c.in[2], c.in[3:]...).Err()
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.ErrorContains(t, err, line)
			if !errors.Is(err, ErrNil) {
				require.ErrorIs(t, err, kernels.ErrOperands)
				require.Equal(t, len(c.want)-1, strings.Count(strings.ReplaceAll(err.Error(), "; cast", ""), "; "), "%v", err)
			}
		})
	}
	require.NoError(t, AttentionBy(both, q, k, k, mask, key).Err())
}
