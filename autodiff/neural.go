package autodiff

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/kernels"
)

// The ops of neural nets. A negative axis counts from the last one. Images are (n, channels,
// height, width), and a window without a kernel has that of the weights.

// products are MatMulT's functions, by which operands it swaps.
var products = [4]*Func{single(kernels.MatMul{}), single(kernels.MatMul{TransA: true}), single(kernels.MatMul{TransB: true}), single(kernels.MatMul{TransA: true, TransB: true})}

// MatMul is the matrix product over the last two axes; the axes before them are a batch and
// broadcast.
func MatMul(a, b *Tensor) *Tensor { return products[0].Call(a, b) }

// MatMul is the matrix product over the last two axes; the axes before them are a batch and
// broadcast.
func (g *Graph) MatMul(a, b *gorgonia.Node) *gorgonia.Node { return g.Apply(kernels.MatMul{}, a, b) }

// MatMulT is MatMul with either operand's last two axes swapped first.
func MatMulT(a, b *Tensor, transA, transB bool) *Tensor {
	which := 0
	if transA {
		which = 1
	}
	if transB {
		which += 2
	}
	return products[which].Call(a, b)
}

// MatMulT is MatMul with either operand's last two axes swapped first.
func (g *Graph) MatMulT(a, b *gorgonia.Node, transA, transB bool) *gorgonia.Node {
	return g.Apply(kernels.MatMul{TransA: transA, TransB: transB}, a, b)
}

var linear = Define("linear", (*Graph).Linear)

// Linear is x·w + b with w (in, out).
func Linear(x, w, b *Tensor) *Tensor { return linear.Call(x, w, b) }

// Linear is x·w + b with w (in, out).
func (g *Graph) Linear(x, w, b *gorgonia.Node) *gorgonia.Node { return g.Add(g.MatMul(x, w), b) }

var gathers = single(kernels.Gather{})

// Embedding picks rows of table (n, d…) by int32 or int64 ids of any shape.
func Embedding(table, ids *Tensor) *Tensor { return embed("Embedding", table, ids) }

// embed is Gather under the name that the user called.
func embed(op string, table, ids *Tensor) *Tensor {
	y := gathers.Call(table, ids)
	theirs := func(t *Tensor) bool { return t != nil && t.err != nil }
	if e, ok := y.err.(*Error); ok && !theirs(table) && !theirs(ids) { //nolint:errorlint // it was made here
		e.Op = op
	}
	return y
}

// Embedding picks rows of table (n, d…) by int32 or int64 ids of any shape.
func (g *Graph) Embedding(table, ids *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Gather{}, table, ids)
}

var opSoftmax = listed("Softmax", func(g *Graph, x *gorgonia.Node, axis ...int) *gorgonia.Node { return g.Softmax(x, axis[0]) })

// Softmax normalises e^x along one axis.
func Softmax(x *Tensor, axis int) *Tensor { return opSoftmax.withList(x, []int{axis}) }

// Softmax normalises e^x along one axis.
func (g *Graph) Softmax(x *gorgonia.Node, axis int) *gorgonia.Node {
	return g.Apply(kernels.Softmax{Axis: wrap(axis, g.rank(x))}, x)
}

var opLogSoftmax = listed("LogSoftmax", func(g *Graph, x *gorgonia.Node, axis ...int) *gorgonia.Node { return g.LogSoftmax(x, axis[0]) })

// LogSoftmax is log(Softmax(x)), computed without overflow.
func LogSoftmax(x *Tensor, axis int) *Tensor { return opLogSoftmax.withList(x, []int{axis}) }

// LogSoftmax is log(Softmax(x)), computed without overflow.
func (g *Graph) LogSoftmax(x *gorgonia.Node, axis int) *gorgonia.Node {
	return g.Apply(kernels.Softmax{Axis: wrap(axis, g.rank(x)), Log: true}, x)
}

var entropy = single(kernels.CrossEntropy{})

// CrossEntropy is the mean over rows of −log softmax(logits)[label]: logits (n, classes), labels
// (n) int32 or int64.
func CrossEntropy(logits, labels *Tensor) *Tensor { return entropy.Call(logits, labels) }

// CrossEntropy is the mean over rows of −log softmax(logits)[label]: logits (n, classes), labels
// (n) int32 or int64.
func (g *Graph) CrossEntropy(logits, labels *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.CrossEntropy{}, logits, labels)
}

var opLayerNorm = parametrise("LayerNorm", func(g *Graph, in []*gorgonia.Node, p *parameters) *gorgonia.Node {
	return g.LayerNorm(in[0], in[1], in[2], p.number())
})

// LayerNorm normalises the last axis to mean 0 and variance 1, then scales by gamma and shifts by
// beta.
func LayerNorm(x, gamma, beta *Tensor, eps float64) *Tensor {
	return opLayerNorm.withNumber(eps, x, gamma, beta)
}

// LayerNorm normalises the last axis to mean 0 and variance 1, then scales by gamma and shifts by
// beta (Ba, Kiros and Hinton, arXiv:1607.06450).
func (g *Graph) LayerNorm(x, gamma, beta *gorgonia.Node, eps float64) *gorgonia.Node {
	i := kernels.LayerNorm{Eps: eps}
	if _, err := i.Infer([]kernels.Type{g.Type(x), g.Type(gamma), g.Type(beta)}); err != nil { // not one number per column
		return g.Add(g.Mul(g.Apply(kernels.Normalize{Eps: eps}, x), gamma), beta)
	}
	return g.Apply(i, x, gamma, beta)
}

var (
	attend   = Define("attention", func(g *Graph, q, k, v *gorgonia.Node) *gorgonia.Node { return g.Attention(q, k, v, false) })
	attended = Define("causal attention", func(g *Graph, q, k, v *gorgonia.Node) *gorgonia.Node { return g.Attention(q, k, v, true) })
)

// Attention is softmax(q·kᵀ/√d)·v for each head: see [Graph.Attention].
func Attention(q, k, v *Tensor, causal bool) *Tensor {
	if causal {
		return attended.Call(q, k, v)
	}
	return attend.Call(q, k, v)
}

// Attention is softmax(q·kᵀ/√d)·v for each head: q (b, t, heads, d), k and v (b, s, heads, d) → (b,
// t, heads, d), without a matrix of all scores in memory. With causal, row r of q sees the first
// s−t+r+1 rows of k and v alone.
func (g *Graph) Attention(q, k, v *gorgonia.Node, causal bool) *gorgonia.Node {
	return g.AttentionBy(kernels.Attention{Causal: causal}, q, k, v)
}

// AttentionBy is [Attention] with what few ask for. i says which of a mask and a [RandomKey]
// follow; these are moved to the device of q.
func AttentionBy(i kernels.Attention, q, k, v *Tensor, more ...*Tensor) *Tensor {
	in := []*Tensor{q, k, v}
	for _, x := range more {
		if x.Err() == nil && q.Err() == nil && x.dev != q.dev {
			x = To(x, q.dev)
		}
		in = append(in, x)
	}
	return Run(i, in...)
}

// AttentionBy is [Graph.Attention] with what few ask for. i says which of a mask, which has no
// gradient, and a key of random numbers follow. Heads of q may share those of k and v: see
// [kernels.Attention].
func (g *Graph) AttentionBy(i kernels.Attention, q, k, v *gorgonia.Node, more ...*gorgonia.Node) *gorgonia.Node {
	outs := g.ApplyAll(i, append([]*gorgonia.Node{q, k, v}, more...)...)
	if outs == nil {
		return nil
	}
	return outs[0]
}

// Dropout keeps each element with probability 1−p and scales it by 1/(1−p); the others become 0.
// Which ones is a function of the key, a [RandomKey], which is moved to the device of x.
func Dropout(x, key *Tensor, p float64) *Tensor {
	if x.Err() == nil && key.Err() == nil && key.dev != x.dev {
		key = To(key, x.dev)
	}
	return Run(kernels.Dropout{P: p}, x, key)
}

// Dropout keeps each element with probability 1−p and scales it by 1/(1−p); the others become 0.
// The key, int64 (2), is a seed and a counter: equal keys keep equal elements.
func (g *Graph) Dropout(x, key *gorgonia.Node, p float64) *gorgonia.Node {
	return g.Apply(kernels.Dropout{P: p}, x, key)
}

// RandomKey is the key of random numbers, int64 (2) on the CPU: a seed, and a counter, of which
// each use of one seed takes another. Equal keys give equal numbers, on every device: see
// [kernels.Random].
func RandomKey(seed, counter uint64) *Tensor { return New([]int64{int64(seed), int64(counter)}) }

// Random draws numbers that are a function of the key, int64 (2): see [kernels.Random].
func (g *Graph) Random(i kernels.Random, key *gorgonia.Node) *gorgonia.Node { return g.Apply(i, key) }

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
func MaxPool2d(x *Tensor, over kernels.Window) *Tensor {
	return Run(kernels.MaxPool2d{Window: over}, x)
}

// MaxPool2d is the largest element under the window; of equal ones the first gets the gradient, of
// NaN the last.
func (g *Graph) MaxPool2d(x *gorgonia.Node, over kernels.Window) *gorgonia.Node {
	return g.Apply(kernels.MaxPool2d{Window: over}, x)
}

// AvgPool2d is the mean of the elements under the window; padding counts as zeros, or with inside
// not at all.
func AvgPool2d(x *Tensor, over kernels.Window, inside bool) *Tensor {
	return Run(kernels.AvgPool2d{Window: over, Inside: inside}, x)
}

// AvgPool2d is the mean of the elements under the window; padding counts as zeros, or with inside
// not at all.
func (g *Graph) AvgPool2d(x *gorgonia.Node, over kernels.Window, inside bool) *gorgonia.Node {
	return g.Apply(kernels.AvgPool2d{Window: over, Inside: inside}, x)
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
func BatchNormWith(x, mean, variance, gamma, beta *Tensor, eps float64) *Tensor {
	return composite(composition{name: "BatchNormWith", c: eps}, func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		return []*gorgonia.Node{g.BatchNormWith(in[0], in[1], in[2], in[3], in[4], eps)}
	}).Call(x, mean, variance, gamma, beta)
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
