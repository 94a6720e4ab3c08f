package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/device"
)

// sizes of the model: a decoder-only transformer with its normalisations before each part (Radford
// et al., 2019). They travel to the workers, each of which makes its own stage.
type sizes struct {
	Vocab, Context, Width, Heads int
	Blocks                       []int // transformer blocks in each stage; the embedding is in the first, the head in the last
	Seed                         uint64
}

// layers is the part of the model in one stage. Parameters are drawn block by block, so the split
// does not change the model.
type layers struct {
	embedding []*autodiff.Tensor // tokens (vocab, width) and positions (context, width); nil but in the first stage
	blocks    [][]*autodiff.Tensor
	head      []*autodiff.Tensor // nil but in the last stage
	block     *autodiff.Func
	dev       device.Device
}

func newLayers(s sizes, stage int, dev device.Device) (*layers, error) {
	l := &layers{block: blockOf(s.Heads), dev: dev}
	draw := func(part int) drawer { return drawer{rand.New(rand.NewPCG(s.Seed, uint64(part))), s.Width} }
	if stage == 0 {
		d := draw(1)
		l.embedding = []*autodiff.Tensor{d.normal(initial, s.Vocab, s.Width), d.normal(initial, s.Context, s.Width)}
	}
	all, first := 0, 0
	for i, n := range s.Blocks {
		all += n
		if i < stage {
			first += n
		}
	}
	for i := range s.Blocks[stage] {
		l.blocks = append(l.blocks, draw(3+first+i).block(all))
	}
	if stage == len(s.Blocks)-1 {
		d := draw(2)
		l.head = slices.Concat(d.norm(), d.linear(initial, s.Width, s.Vocab))
	}
	return l, l.move()
}

// move brings the parameters to the device.
func (l *layers) move() error {
	if l.dev == device.Host() {
		return nil
	}
	for _, of := range append(slices.Clone(l.blocks), l.embedding, l.head) {
		for i, p := range of {
			if of[i] = autodiff.To(p.Detach(), l.dev).RequireGrad(); of[i].Err() != nil {
				return of[i].Err()
			}
		}
	}
	return nil
}

// params lists the parameters, in a fixed order.
func (l *layers) params() []*autodiff.Tensor {
	return slices.Concat(l.embedding, slices.Concat(l.blocks...), l.head)
}

// forward takes ids (batch, context) in the first stage and activations (batch, context, width) in
// the others. It gives activations; in the last stage the mean loss where labels (batch, context)
// are given, otherwise logits (batch·context, vocab).
func (l *layers) forward(x, labels *autodiff.Tensor) *autodiff.Tensor {
	if l.embedding != nil {
		x = embed.Call(l.embedding[0], l.embedding[1], autodiff.To(x, l.dev))
	}
	for _, b := range l.blocks {
		x = l.block.Call(append([]*autodiff.Tensor{x}, b...)...)
	}
	switch {
	case l.head == nil:
		return x
	case labels == nil:
		return logitsOf.Call(append([]*autodiff.Tensor{x}, l.head...)...)
	}
	return lossOf.Call(append([]*autodiff.Tensor{x, autodiff.To(labels, l.dev)}, l.head...)...)
}

type node = *gorgonia.Node

var embed = autodiff.Define("embed", func(g *autodiff.Graph, tokens, positions, ids node) node {
	return g.Add(g.Embedding(tokens, ids), positions)
})

// blockOf is attention and a two-layer network, each on the normalised input and added to it,
// compiled into one function.
func blockOf(heads int) *autodiff.Func {
	return autodiff.Define("block", func(g *autodiff.Graph, x, g1, b1, wq, bq, wk, bk, wv, bv, wo, bo, g2, b2, w1, c1, w2, c2 node) node {
		s := g.Type(x).Shape
		batch, length, width := s[0], s[1], s[2]
		split := func(n node) node { return g.Reshape(n, batch, length, heads, width/heads) }
		n := g.LayerNorm(x, g1, b1, epsilon)
		q, k, v := split(g.Linear(n, wq, bq)), split(g.Linear(n, wk, bk)), split(g.Linear(n, wv, bv))
		seen := g.Reshape(g.Attention(q, k, v, true), batch, length, width)
		x = g.Add(x, g.Linear(seen, wo, bo))
		n = g.LayerNorm(x, g2, b2, epsilon)
		return g.Add(x, g.Linear(g.ReLU(g.Linear(n, w1, c1)), w2, c2))
	})
}

func logits(g *autodiff.Graph, x, gamma, beta, w, b node) node {
	s := g.Type(x).Shape
	return g.Reshape(g.Linear(g.LayerNorm(x, gamma, beta, epsilon), w, b), s[0]*s[1], -1)
}

var (
	logitsOf = autodiff.Define("logits", logits)
	lossOf   = autodiff.Define("loss", func(g *autodiff.Graph, x, labels, gamma, beta, w, b node) node {
		return g.CrossEntropy(logits(g, x, gamma, beta, w, b), g.Reshape(labels, -1))
	})
)

const (
	epsilon = 1e-5
	initial = 0.02 // standard deviation of the first weights, as in GPT-2
)

// drawer draws the first values of a part of the model.
type drawer struct {
	src   *rand.Rand
	width int
}

func (d drawer) normal(std float64, shape ...int) *autodiff.Tensor {
	return nn.Normal(d.src, device.Float32, 0, std, shape...).RequireGrad()
}

func (d drawer) linear(std float64, in, out int) []*autodiff.Tensor {
	return []*autodiff.Tensor{d.normal(std, in, out), nn.Zeros(device.Float32, out).RequireGrad()}
}

func (d drawer) norm() []*autodiff.Tensor { return nn.NewLayerNorm(d.width).Params() }

// block draws what adds to the stream smaller, the more of it there is.
func (d drawer) block(blocks int) []*autodiff.Tensor {
	w, adds := d.width, initial/math.Sqrt(float64(2*max(blocks, 1)))
	return slices.Concat(d.norm(), d.linear(initial, w, w), d.linear(initial, w, w), d.linear(initial, w, w), d.linear(adds, w, w),
		d.norm(), d.linear(initial, w, 4*w), d.linear(adds, 4*w, w))
}

// part says what is in a stage.
func (s sizes) part(stage int) string {
	var parts []string
	if stage == 0 {
		parts = append(parts, "embedding")
	}
	switch n := s.Blocks[stage]; {
	case n == 1:
		parts = append(parts, "1 block")
	case n > 1:
		parts = append(parts, fmt.Sprintf("%d blocks", n))
	}
	if stage == len(s.Blocks)-1 {
		parts = append(parts, "head")
	}
	return strings.Join(parts, " and ")
}

// parameters counts the numbers that are learned.
func (s sizes) parameters() int {
	blocks := 0
	for _, n := range s.Blocks {
		blocks += n
	}
	w := s.Width
	return (s.Vocab+s.Context)*w + blocks*(12*w*w+13*w) + 2*w + (w+1)*s.Vocab
}
