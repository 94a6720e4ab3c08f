package autodiff

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// windows are over images of 5×6.
func windows() []kernels.Window {
	return []kernels.Window{
		kernels.Square(1, 1, 0), kernels.Square(3, 1, 1), kernels.Square(2, 2, 0), kernels.Square(3, 2, 1), kernels.Square(5, 1, 0),
		{Kernel: [2]int{2, 3}, Stride: [2]int{1, 2}, Dilation: [2]int{2, 1}},
		{Kernel: [2]int{4, 2}, Before: [2]int{1, 0}, After: [2]int{2, 1}, Dilation: [2]int{1, 3}},
		{Kernel: [2]int{1, 4}, Stride: [2]int{3, 1}, After: [2]int{0, 2}},
	}
}

// ints are the parts of a window as Gorgonia wants them; false where it has no such.
func ints(w kernels.Window) (kernel tensor.Shape, pad, stride, dilation []int, ok bool) {
	one := func(v [2]int) []int { return []int{max(v[0], 1), max(v[1], 1)} }
	return w.Kernel[:], w.Before[:], one(w.Stride), one(w.Dilation), w.Before == w.After
}

func imageCases() []opCase {
	var cs []opCase
	key := func(r *rand.Rand) arg { return ids(r, device.Int64, 1<<40, 2) }
	add := func(name string, in func(*rand.Rand) []arg, body func(g *Graph, in []node) node, alt func([]node) (node, error)) {
		cs = append(cs, opCase{name, in, body, alt})
	}
	for _, w := range windows() {
		kernel, pad, stride, dilation, ok := ints(w)
		var conv, pool func(in []node) (node, error)
		if ok {
			conv = func(in []node) (node, error) { return gorgonia.Conv2d(in[0], in[1], kernel, pad, stride, dilation) }
		}
		if ok && w.Dilation == [2]int{} && w.Before == [2]int{} {
			pool = func(in []node) (node, error) { return gorgonia.MaxPool2D(in[0], kernel, pad, stride) }
		}
		filter := []int{3, 2, w.Kernel[0], w.Kernel[1]}
		images := fixed(distinct, []int{2, 2, 5, 6})
		add(fmt.Sprint("Conv2d ", w), fixed(normal, []int{2, 2, 5, 6}, filter), func(g *Graph, in []node) node { return g.Conv2d(in[0], in[1], nil, w) }, conv)
		add(fmt.Sprint("MaxPool2d ", w), images, func(g *Graph, in []node) node { return g.MaxPool2d(in[0], w) }, pool)
		add(fmt.Sprint("AvgPool2d ", w), images, func(g *Graph, in []node) node { return g.AvgPool2d(in[0], w, w.Stride[0] == 0) }, nil)
		add(fmt.Sprint("Im2col ", w), images, func(g *Graph, in []node) node { return g.Im2col(in[0], w) }, nil)
	}
	w := kernels.Window{Kernel: [2]int{3, 2}, Stride: [2]int{2, 1}, Before: [2]int{1, 0}}
	filter := []int{3, 2, 3, 2}
	add("Conv2d with a bias", fixed(normal, []int{2, 2, 5, 6}, filter, []int{3}),
		func(g *Graph, in []node) node {
			return g.Conv2d(in[0], in[1], in[2], kernels.Window{Stride: w.Stride, Before: w.Before})
		}, nil)
	add("Conv2d of nothing", fixed(normal, []int{0, 2, 5, 6}, filter), func(g *Graph, in []node) node { return g.Conv2d(in[0], in[1], nil, w) }, nil)
	add("Conv2d of no channels", fixed(normal, []int{2, 0, 5, 6}, []int{3, 0, 3, 2}), func(g *Graph, in []node) node { return g.Conv2d(in[0], in[1], nil, w) }, nil)
	add("ConvTranspose2d", fixed(normal, []int{2, 3, 2, 5}, filter), func(g *Graph, in []node) node { return g.ConvTranspose2d(in[0], in[1], w, 5, 6) }, nil)
	add("Conv2dGradW", fixed(normal, []int{2, 2, 5, 6}, []int{2, 3, 2, 5}),
		func(g *Graph, in []node) node { return g.Apply(kernels.Conv2dGradW{Window: w}, in[0], in[1]) }, nil)
	add("Col2im in rows", fixed(normal, []int{2, 2, 5, 12}), func(g *Graph, in []node) node {
		return g.Apply(kernels.Col2im{Im2col: kernels.Im2col{Window: w, Rows: true}, Channels: 2, Height: 5, Width: 6}, in[0])
	}, nil)
	add("AvgPool2dGrad", fixed(normal, []int{2, 3, 2, 5}), func(g *Graph, in []node) node {
		return g.Apply(kernels.AvgPool2dGrad{AvgPool2d: kernels.AvgPool2d{Window: w}, Height: 5, Width: 6}, in[0])
	}, nil)
	for _, p := range []float64{0, 0.4, 1} {
		add(fmt.Sprint("Dropout ", p), func(r *rand.Rand) []arg { return []arg{normal(r, 3, 7), key(r)} },
			func(g *Graph, in []node) node { return g.Dropout(in[0], in[1], p) }, nil)
	}
	add("a product with random numbers", func(r *rand.Rand) []arg { return []arg{normal(r, 3, 7), key(r)} }, func(g *Graph, in []node) node {
		return g.Mul(in[0], g.Random(kernels.Random{Fn: kernels.Bernoulli, Type: g.Type(in[0]), P: 0.5}, in[1]))
	}, nil)
	for _, shape := range [][]int{{3, 2, 2, 3}, {5, 3}, {3, 2, 4}} {
		c := []int{shape[1]}
		add(fmt.Sprint("BatchNorm ", shape), fixed(normal, shape, c, c), func(g *Graph, in []node) node {
			y, _, _ := g.BatchNorm(in[0], in[1], in[2], 1e-3)
			return y
		}, nil)
		add(fmt.Sprint("BatchNorm with its mean and variance ", shape), fixed(normal, shape, c, c), func(g *Graph, in []node) node {
			y, mean, variance := g.BatchNorm(in[0], in[1], in[2], 1e-3)
			return g.Concat(0, mean, variance, g.Reshape(y, -1))
		}, nil)
		add(fmt.Sprint("BatchNormWith ", shape), fixed(positive, shape, c, c, c, c), func(g *Graph, in []node) node {
			return g.BatchNormWith(in[0], in[1], in[2], in[3], in[4], 1e-3)
		}, nil)
	}
	add("a small convolutional net", func(r *rand.Rand) []arg {
		return []arg{normal(r, 2, 1, 6, 6), normal(r, 2, 1, 3, 3), normal(r, 2), normal(r, 18, 3), normal(r, 3), ids(r, device.Int64, 3, 2)}
	}, func(g *Graph, in []node) node {
		y := g.MaxPool2d(g.Tanh(g.Conv2d(in[0], in[1], in[2], kernels.Square(3, 1, 1))), kernels.Square(2, 2, 0))
		return g.CrossEntropy(g.Linear(g.Reshape(y, 2, -1), in[3], in[4]), in[5])
	}, nil)
	return cs
}
