package measure

import (
	"math"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/optim"
)

// convSize is how large a convolutional net is: square images, channels of two layers, classes.
type convSize struct {
	batch, in, side int
	channels        []int
	classes         int
}

// newConv is a classifier of images: two convolutions, each with a ReLU and a pool, and a linear
// layer.
func newConv(s convSize) model {
	src := source(10)
	filters := func(in, out int) *autodiff.Tensor {
		return autodiff.NormalFrom(src, 1/math.Sqrt(9*float64(in)), out, in, 3, 3)
	}
	bias := func(n int) *autodiff.Tensor { return autodiff.NormalFrom(src, 0.1, n) }
	c1, c2 := s.channels[0], s.channels[1]
	flat := c2 * (s.side / 4) * (s.side / 4)
	padded, pool := kernels.Square(3, 1, 1), kernels.Square(2, 2, 0)
	net := autodiff.Define("convnet", func(g *autodiff.Graph, x, w1, b1, w2, b2, w3, b3, y node) node {
		h := g.MaxPool2d(g.ReLU(g.Conv2d(x, w1, b1, padded)), pool)
		h = g.AvgPool2d(g.ReLU(g.Conv2d(h, w2, b2, padded)), pool, false)
		return g.CrossEntropy(g.Linear(g.Reshape(h, s.batch, flat), w3, b3), y)
	})
	return model{
		params: append(tensors{filters(s.in, c1), bias(c1), filters(c1, c2), bias(c2)}, linears(src, flat, s.classes)...),
		names:  []string{"convolution 1 weight", "convolution 1 bias", "convolution 2 weight", "convolution 2 bias", "linear weight", "linear bias"},
		kinks:  true,
		batch:  tensors{autodiff.NormalFrom(source(11), 1, s.batch, s.in, s.side, s.side), labels(s.batch, s.classes)},
		rule:   optim.SGD{LR: 0.01},
		loss:   func(p, in tensors) *autodiff.Tensor { return net.Call(append(append(tensors{in[0]}, p...), in[1])...) },
	}
}
