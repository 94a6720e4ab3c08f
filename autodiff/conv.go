package autodiff

import (
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/kernels"
)

// The functions of convolutional nets. Images are (n, channels, height, width). A window without a
// kernel has that of the weights.

// Conv2d correlates images with kernels w (out, channels, kh, kw) and adds b (out), which may be
// nil.
func Conv2d(x, w, b *Tensor, over kernels.Window) *Tensor {
	if b == nil {
		return composite(composition{name: "Conv2d without bias", over: over}, func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
			return []*gorgonia.Node{g.Conv2d(in[0], in[1], nil, over)}
		}).Call(x, w)
	}
	return composite(composition{name: "Conv2d", over: over}, func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		return []*gorgonia.Node{g.Conv2d(in[0], in[1], in[2], over)}
	}).Call(x, w, b)
}

// MaxPool2d is the largest element under the window; of equal ones the first gets the gradient, of
// NaN the last.
func MaxPool2d(x *Tensor, over kernels.Window) *Tensor {
	return Run(kernels.MaxPool2d{Window: over}, x)
}

// AvgPool2d is the mean of the elements under the window; padding counts as zeros, or with inside
// not at all.
func AvgPool2d(x *Tensor, over kernels.Window, inside bool) *Tensor {
	return Run(kernels.AvgPool2d{Window: over, Inside: inside}, x)
}

// RandomKey is the key of random numbers, int64 (2) on the CPU: a seed, and a counter, of which
// each use of one seed takes another. Equal keys give equal numbers, on every device: see
// [kernels.Random].
func RandomKey(seed, counter uint64) *Tensor { return New([]int64{int64(seed), int64(counter)}) }

// Dropout keeps each element with probability 1−p and scales it by 1/(1−p); the others become 0.
// Which ones is a function of the key, a [RandomKey], which is moved to the device of x.
func Dropout(x, key *Tensor, p float64) *Tensor {
	if x.Err() == nil && key.Err() == nil && key.dev != x.dev {
		key = To(key, x.dev)
	}
	return Run(kernels.Dropout{P: p}, x, key)
}

// BatchNorm normalises each channel, axis 1, to mean 0 and variance 1 over the batch and all other
// axes, then scales by gamma (c) and shifts by beta (c). It also gives the batch's mean and biased
// variance, both (c). When something is wrong, all three carry the error.
func BatchNorm(x, gamma, beta *Tensor, eps float64) (y, mean, variance *Tensor) {
	outs := composite(composition{name: "BatchNorm", c: eps}, func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		y, mean, variance := g.BatchNorm(in[0], in[1], in[2], eps)
		return []*gorgonia.Node{y, mean, variance}
	}).CallAll(x, gamma, beta)
	if len(outs) == 1 {
		return outs[0], outs[0], outs[0]
	}
	return outs[0], outs[1], outs[2]
}

// BatchNormWith is BatchNorm with a given mean and variance, both (c), as after training.
func BatchNormWith(x, mean, variance, gamma, beta *Tensor, eps float64) *Tensor {
	return composite(composition{name: "BatchNormWith", c: eps}, func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		return []*gorgonia.Node{g.BatchNormWith(in[0], in[1], in[2], in[3], in[4], eps)}
	}).Call(x, mean, variance, gamma, beta)
}

// composition tells functions of a few ops apart.
type composition struct {
	name string
	over kernels.Window
	c    float64
}

// composites keeps the functions of a few ops that were used eagerly, as primitives does those of
// one.
var composites struct {
	sync.RWMutex
	of map[composition]*Func
}

// composite is the function with this key, made when it is first asked for.
func composite(key composition, build func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node) *Func {
	composites.RLock()
	f := composites.of[key]
	composites.RUnlock()
	if f != nil {
		return f
	}
	composites.Lock()
	defer composites.Unlock()
	if f := composites.of[key]; f != nil {
		return f
	}
	if composites.of == nil || len(composites.of) >= maxPrimitives {
		composites.of = map[composition]*Func{}
	}
	name := key.name
	if key.over != (kernels.Window{}) {
		name = fmt.Sprintf("%s(%v)", key.name, key.over)
	}
	f = &Func{name: name, arity: -1, build: build}
	composites.of[key] = f
	return f
}
