package measure

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/optim"
)

// gptSize is how large a transformer is that predicts the next token.
type gptSize struct{ batch, length, vocab, width, heads, layers int }

// newGPT is GPT-2's shape, without dropout: bench/torch/gpu.py has the same. The embedding is the
// last layer's weight too.
func newGPT(s gptSize) model {
	src := source(6)
	norm := func() tensors { return nn.NewLayerNorm(s.width).Params() }
	linear := func(in, out int) tensors { return linears(src, in, out) }
	params := tensors{autodiff.NormalFrom(src, 0.02, s.vocab, s.width), autodiff.NormalFrom(src, 0.02, s.length, s.width)}
	for range s.layers {
		params = slices.Concat(params, norm(), linear(s.width, 3*s.width), linear(s.width, s.width), norm(), linear(s.width, 4*s.width), linear(4*s.width, s.width))
	}
	params = append(params, norm()...)
	ids, next := text(s, source(7))
	embed, block, head := gptParts(s)
	const each = 12 // parameters of a block
	return model{params: params, names: gptNames(s.layers), batch: tensors{ids, next}, rule: optim.AdamW{LR: 1e-4}, loss: func(p, in tensors) *autodiff.Tensor {
		x := embed.Call(p[0], p[1], in[0])
		for k := range s.layers {
			x = block.Call(append(tensors{x}, p[2+k*each:2+(k+1)*each]...)...)
		}
		last := p[2+s.layers*each:]
		return head.Call(x, last[0], last[1], p[0], in[1])
	}}
}

// gptNames are the parameters' names, in order.
func gptNames(layers int) []string {
	names := []string{"tokens", "places"}
	for k := range layers {
		for _, part := range []string{"norm 1 scale", "norm 1 shift", "query-key-value weight", "query-key-value bias", "attention weight", "attention bias",
			"norm 2 scale", "norm 2 shift", "widening weight", "widening bias", "narrowing weight", "narrowing bias"} {
			names = append(names, fmt.Sprintf("block %d %s", k+1, part))
		}
	}
	return append(names, "last norm scale", "last norm shift")
}

// gptParts are the functions of which the model is made.
func gptParts(s gptSize) (embed, block, head *autodiff.Func) {
	embed = autodiff.Define("embed", func(g *autodiff.Graph, tokens, places, ids node) node {
		return g.Add(g.Embedding(tokens, ids), places)
	})
	block = autodiff.Define("block", func(g *autodiff.Graph, x, g1, b1, wqkv, bqkv, wo, bo, g2, b2, w1, c1, w2, c2 node) node {
		qkv := g.Linear(g.LayerNorm(x, g1, b1, 1e-5), wqkv, bqkv)
		split := func(k int) node {
			return g.Reshape(g.Slice(qkv, 2, k*s.width, (k+1)*s.width), -1, s.length, s.heads, s.width/s.heads)
		}
		seen := g.Reshape(g.Attention(split(0), split(1), split(2), true), -1, s.length, s.width)
		x = g.Add(x, g.Linear(seen, wo, bo))
		return g.Add(x, g.Linear(g.GELU(g.Linear(g.LayerNorm(x, g2, b2, 1e-5), w1, c1)), w2, c2))
	})
	head = autodiff.Define("head", func(g *autodiff.Graph, x, gamma, beta, tokens, next node) node {
		rows := g.Reshape(g.LayerNorm(x, gamma, beta, 1e-5), -1, s.width)
		return g.CrossEntropy(g.MatMulT(rows, tokens, false, true), next)
	})
	return embed, block, head
}

// text is random tokens (batch, length), and for each the one that follows it (batch·length).
func text(s gptSize, src *rand.Rand) (ids, next *autodiff.Tensor) {
	here, after := make([]int64, 0, s.batch*s.length), make([]int64, 0, s.batch*s.length)
	for range s.batch {
		last := src.Int64N(int64(s.vocab))
		for range s.length {
			here = append(here, last)
			last = src.Int64N(int64(s.vocab))
			after = append(after, last)
		}
	}
	return autodiff.New(here, s.batch, s.length), autodiff.New(after)
}
