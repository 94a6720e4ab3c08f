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

// Conv2d correlates images with kernels w (out, channels, kh, kw) and adds b (out), which may be
// nil.
func (g *Graph) Conv2d(x, w, b *gorgonia.Node, over kernels.Window) *gorgonia.Node {
	y := g.Apply(kernels.Conv2d{Window: g.kernelOf(w, over)}, x, w)
	if b == nil || y == nil {
		return y
	}
	if t := g.Type(b).Shape; len(t) != 1 || t[0] != g.Type(y).Shape[1] {
		return g.of.Fail("Conv2d", fmt.Errorf("%w: kernels %v have no bias %v", kernels.ErrOperands, g.Type(w), g.Type(b)))
	}
	return g.Add(y, g.perChannel(b, y))
}

// ConvTranspose2d is the gradient of Conv2d's images: x (n, channels, h, w), w (channels, out, kh,
// kw) → (n, out, height, width). Height and width are the caller's, because several give images of
// one size.
func (g *Graph) ConvTranspose2d(x, w *gorgonia.Node, over kernels.Window, height, width int) *gorgonia.Node {
	return g.Apply(kernels.Conv2dGradX{Window: g.kernelOf(w, over), Height: height, Width: width}, w, x)
}

// kernelOf fills in a window's kernel from the weights.
func (g *Graph) kernelOf(w *gorgonia.Node, over kernels.Window) kernels.Window {
	if s := g.Type(w).Shape; len(s) == 4 && over.Kernel == [2]int{} {
		over.Kernel = [2]int{s[2], s[3]}
	}
	return over
}

// Im2col lays out what the window sees at each of its positions: (n, c, h, w) → (n, c·kh·kw,
// oh·ow).
func (g *Graph) Im2col(x *gorgonia.Node, over kernels.Window) *gorgonia.Node {
	return g.Apply(kernels.Im2col{Window: over}, x)
}

// MaxPool2d is the largest element under the window; of equal ones the first gets the gradient, of
// NaN the last.
func (g *Graph) MaxPool2d(x *gorgonia.Node, over kernels.Window) *gorgonia.Node {
	return g.Apply(kernels.MaxPool2d{Window: over}, x)
}

// AvgPool2d is the mean of the elements under the window; padding counts as zeros, or with inside
// not at all.
func (g *Graph) AvgPool2d(x *gorgonia.Node, over kernels.Window, inside bool) *gorgonia.Node {
	return g.Apply(kernels.AvgPool2d{Window: over, Inside: inside}, x)
}

// Dropout keeps each element with probability 1−p and scales it by 1/(1−p); the others become 0.
// The key, int64 (2), is a seed and a counter: equal keys keep equal elements.
func (g *Graph) Dropout(x, key *gorgonia.Node, p float64) *gorgonia.Node {
	return g.Apply(kernels.Dropout{P: p}, x, key)
}

// Random draws numbers that are a function of the key, int64 (2): see [kernels.Random].
func (g *Graph) Random(i kernels.Random, key *gorgonia.Node) *gorgonia.Node { return g.Apply(i, key) }

// BatchNorm normalises each channel, axis 1, to mean 0 and variance 1 over the batch and all other
// axes, then scales by gamma (c) and shifts by beta (c) (Ioffe and Szegedy, arXiv:1502.03167). It
// also gives the batch's mean and biased variance, both (c).
func (g *Graph) BatchNorm(x, gamma, beta *gorgonia.Node, eps float64) (y, mean, variance *gorgonia.Node) {
	if !g.channels("BatchNorm", x, gamma, beta) {
		return nil, nil, nil
	}
	over := []int{0}
	for a := 2; a < g.rank(x); a++ {
		over = append(over, a)
	}
	mean = g.Mean(x, over...)
	d := g.Sub(x, g.perChannel(mean, x))
	variance = g.Mean(g.Mul(d, d), over...)
	return g.scaled(d, variance, gamma, beta, eps), mean, variance
}

// BatchNormWith is BatchNorm with a given mean and variance, both (c), as after training.
func (g *Graph) BatchNormWith(x, mean, variance, gamma, beta *gorgonia.Node, eps float64) *gorgonia.Node {
	if !g.channels("BatchNorm", x, mean, variance, gamma, beta) {
		return nil
	}
	return g.scaled(g.Sub(x, g.perChannel(mean, x)), variance, gamma, beta, eps)
}

// scaled is d·gamma/√(variance+eps) + beta.
func (g *Graph) scaled(d, variance, gamma, beta *gorgonia.Node, eps float64) *gorgonia.Node {
	scale := g.Div(gamma, g.Sqrt(g.Shift(variance, eps)))
	return g.Add(g.Mul(d, g.perChannel(scale, d)), g.perChannel(beta, d))
}

// channels checks that x has channels and every other operand a number for each.
func (g *Graph) channels(op string, x *gorgonia.Node, per ...*gorgonia.Node) bool {
	t := g.Type(x)
	for _, p := range per {
		if s := g.Type(p).Shape; g.Err() == nil && (len(t.Shape) < 2 || len(s) != 1 || s[0] != t.Shape[1]) {
			g.of.Fail(op, fmt.Errorf("%w: %v has not one number for each channel (axis 1) of %v", kernels.ErrOperands, g.Type(p), t))
		}
	}
	return g.Err() == nil
}

// perChannel gives p (c) a shape that broadcasts over like's axis 1.
func (g *Graph) perChannel(p, like *gorgonia.Node) *gorgonia.Node {
	if g.Err() != nil {
		return nil
	}
	shape := []int{-1}
	for range g.rank(like) - 2 {
		shape = append(shape, 1)
	}
	return g.Reshape(p, shape...)
}
