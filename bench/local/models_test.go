package local

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/optim"
)

type node = *gorgonia.Node

// model is a loss and what it depends on.
type model struct {
	params []*autodiff.Tensor
	loss   func() *autodiff.Tensor
	rate   float64
}

// stepper is a training step: forward, backward, SGD. What it makes is freed at its end.
func (m model) stepper(t testing.TB) func() {
	opt, err := optim.New(optim.SGD{LR: m.rate}, m.params...)
	require.NoError(t, err)
	return func() {
		grads, err := autodiff.Backward(m.loss())
		if err != nil {
			t.Fatal(err)
		}
		if err := opt.Step(grads.All()); err != nil {
			t.Fatal(err)
		}
		grads.Free()
	}
}

func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// within owns what is computed from a batch: each step begins a new arena.
func within(inputs []*autodiff.Tensor, loss func(in []*autodiff.Tensor) *autodiff.Tensor) func() *autodiff.Tensor {
	var last *autodiff.Arena
	return func() *autodiff.Tensor {
		if last != nil {
			last.Free()
		}
		last = autodiff.NewArena("step")
		in := make([]*autodiff.Tensor, len(inputs))
		for i, t := range inputs {
			in[i] = t.Detach()
			if err := last.Adopt(in[i]); err != nil {
				return autodiff.Failed(err)
			}
		}
		return loss(in)
	}
}

func labels(n int) *autodiff.Tensor {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i * 7 % 10)
	}
	return autodiff.New(ids)
}

// mlp is 784-1024-1024-10 with ReLU on 64 rows, as one function or layer by layer.
func mlp(compiled bool) model {
	net := nn.NewMLP(source(), autodiff.ReLU, 784, 1024, 1024, 10)
	x, y := autodiff.NormalFrom(source(), 1, 64, 784), labels(64)
	loss := func(in []*autodiff.Tensor) *autodiff.Tensor {
		if compiled {
			return mlpLoss.Call(append([]*autodiff.Tensor{in[0], y}, net.Params()...)...)
		}
		return autodiff.CrossEntropy(net.Forward(in[0]), y)
	}
	return model{net.Params(), within([]*autodiff.Tensor{x}, loss), 0.05}
}

var mlpLoss = autodiff.Define("mlp", func(g *autodiff.Graph, x, y, w1, b1, w2, b2, w3, b3 node) node {
	h := g.ReLU(g.Linear(x, w1, b1))
	h = g.ReLU(g.Linear(h, w2, b2))
	return g.CrossEntropy(g.Linear(h, w3, b3), y)
})

const (
	batch, length, width, heads = 8, 128, 256, 4
)

// block is a transformer block as one function: causal attention and a network with GELU, each on
// the normalised input and added to it.
var block = autodiff.Define("block", func(g *autodiff.Graph, x, g1, b1, wqkv, bqkv, wo, bo, g2, b2, w1, c1, w2, c2 node) node {
	n := g.LayerNorm(x, g1, b1, 1e-5)
	qkv := g.Linear(n, wqkv, bqkv)
	split := func(k int) node {
		return g.Reshape(g.Slice(qkv, 2, k*width, (k+1)*width), batch, length, heads, width/heads)
	}
	seen := g.Reshape(g.Attention(split(0), split(1), split(2), true), batch, length, width)
	x = g.Add(x, g.Linear(seen, wo, bo))
	n = g.LayerNorm(x, g2, b2, 1e-5)
	return g.Add(x, g.Linear(g.GELU(g.Linear(n, w1, c1)), w2, c2))
})

var meanSquare = autodiff.Define("mean square", func(g *autodiff.Graph, x node) node { return g.Mean(g.Mul(x, x)) })

func transformer() model { return transformerOn(device.Host()) }

func transformerOn(dev device.Device) model {
	src := source()
	linear := func(in, out int) []*autodiff.Tensor { return nn.NewLinear(src, in, out).Params() }
	norm := func() []*autodiff.Tensor { return nn.NewLayerNorm(width).Params() }
	params := slices.Concat(norm(), linear(width, 3*width), linear(width, width), norm(), linear(width, 4*width), linear(4*width, width))
	x := autodiff.To(autodiff.NormalFrom(src, 1, batch, length, width), dev)
	for i, p := range params {
		params[i] = autodiff.To(p.Detach(), dev).RequireGrad()
	}
	return model{params, within([]*autodiff.Tensor{x}, func(in []*autodiff.Tensor) *autodiff.Tensor {
		return meanSquare.Call(block.Call(append([]*autodiff.Tensor{in[0]}, params...)...))
	}), 0.01}
}

func small(grad bool) *autodiff.Tensor {
	t := autodiff.NormalFrom(source(), 1, 3, 3)
	if grad {
		t.RequireGrad()
	}
	return t
}

// convnet is two convolutions with pooling and a linear layer on 8×1×28×28, as one function or
// layer by layer.
func convnet(compiled bool) model {
	src, same, half := source(), kernels.Square(3, 1, 1), nn.MaxPool2d{Over: kernels.Square(2, 2, 0)}
	net := nn.Sequential{
		nn.NewConv2d(src, 1, 16, same), nn.Activation(autodiff.ReLU), half,
		nn.NewConv2d(src, 16, 32, same), nn.Activation(autodiff.ReLU), half, nn.Flatten{}, nn.NewLinear(src, 32*49, 10),
	}
	x, y := autodiff.NormalFrom(source(), 1, 8, 1, 28, 28), labels(8)
	loss := func(in []*autodiff.Tensor) *autodiff.Tensor {
		if compiled {
			return convnetLoss.Call(append([]*autodiff.Tensor{in[0], y}, net.Params()...)...)
		}
		return autodiff.CrossEntropy(net.Forward(in[0]), y)
	}
	return model{net.Params(), within([]*autodiff.Tensor{x}, loss), 0.05}
}

var convnetLoss = autodiff.Define("convnet", func(g *autodiff.Graph, x, y, w1, b1, w2, b2, w3, b3 node) node {
	same, half := kernels.Square(3, 1, 1), kernels.Square(2, 2, 0)
	h := g.MaxPool2d(g.ReLU(g.Conv2d(x, w1, b1, same)), half)
	h = g.MaxPool2d(g.ReLU(g.Conv2d(h, w2, b2, same)), half)
	return g.CrossEntropy(g.Linear(g.Reshape(h, 8, -1), w3, b3), y)
})
