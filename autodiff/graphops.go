package autodiff

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// The ops of a graph. Shapes broadcast as in NumPy. A negative axis counts from the last one.

// Add is a + b.
func (g *Graph) Add(a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: kernels.Add}, a, b)
}

// Sub is a − b.
func (g *Graph) Sub(a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: kernels.Sub}, a, b)
}

// Mul is the elementwise product a·b.
func (g *Graph) Mul(a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: kernels.Mul}, a, b)
}

// Div is the elementwise quotient a/b.
func (g *Graph) Div(a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: kernels.Div}, a, b)
}

// Neg is −x.
func (g *Graph) Neg(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Neg}, x)
}

// Exp is e to the x.
func (g *Graph) Exp(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Exp}, x)
}

// Log is the natural logarithm.
func (g *Graph) Log(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Log}, x)
}

// Sqrt is the square root.
func (g *Graph) Sqrt(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Sqrt}, x)
}

// Tanh is the hyperbolic tangent.
func (g *Graph) Tanh(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Tanh}, x)
}

// Sigmoid is 1/(1+e^−x).
func (g *Graph) Sigmoid(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Sigmoid}, x)
}

// ReLU is max(x, 0), and NaN where x is, where its gradient passes as PyTorch's does.
func (g *Graph) ReLU(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Relu}, x)
}

// GELU is x·Φ(x), exact (Hendrycks and Gimpel, arXiv:1606.08415). Of −∞ it is 0, and so is its
// gradient, which of ∞ is 1: the limits, where PyTorch's are NaN.
func (g *Graph) GELU(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Gelu}, x)
}

// Scale is c·x.
func (g *Graph) Scale(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Scale, C: c}, x)
}

// Shift is x + c.
func (g *Graph) Shift(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Shift, C: c}, x)
}

// MatMul is the matrix product over the last two axes; the axes before them are a batch and
// broadcast.
func (g *Graph) MatMul(a, b *gorgonia.Node) *gorgonia.Node { return g.Apply(kernels.MatMul{}, a, b) }

// MatMulT is MatMul with either operand's last two axes swapped first.
func (g *Graph) MatMulT(a, b *gorgonia.Node, transA, transB bool) *gorgonia.Node {
	return g.Apply(kernels.MatMul{TransA: transA, TransB: transB}, a, b)
}

// Sum adds over axes and drops them; over all axes where none are given.
func (g *Graph) Sum(x *gorgonia.Node, axes ...int) *gorgonia.Node {
	return g.reduce(kernels.Sum, x, axes)
}

// Mean averages over axes and drops them.
func (g *Graph) Mean(x *gorgonia.Node, axes ...int) *gorgonia.Node {
	return g.reduce(kernels.Mean, x, axes)
}

// Max is the largest over axes, which it drops; where several are largest the gradient is shared,
// and where some are NaN, by those.
func (g *Graph) Max(x *gorgonia.Node, axes ...int) *gorgonia.Node {
	return g.reduce(kernels.Max, x, axes)
}

func (g *Graph) reduce(fn kernels.ReduceFn, x *gorgonia.Node, axes []int) *gorgonia.Node {
	return g.Apply(kernels.Reduce{Fn: fn, Axes: normalised(axes, g.rank(x))}, x)
}

// Reshape keeps the elements in order under another shape; one extent may be −1.
func (g *Graph) Reshape(x *gorgonia.Node, shape ...int) *gorgonia.Node {
	return g.Apply(kernels.Reshape{Shape: inferredShape(g.types[x].Shape, shape)}, x)
}

// BroadcastTo repeats x along new axes and along axes of extent 1.
func (g *Graph) BroadcastTo(x *gorgonia.Node, shape ...int) *gorgonia.Node {
	return g.Apply(kernels.BroadcastTo{Shape: device.Shape(shape).Clone()}, x)
}

// Transpose permutes axes; without perm it reverses them.
func (g *Graph) Transpose(x *gorgonia.Node, perm ...int) *gorgonia.Node {
	return g.Apply(kernels.Transpose{Perm: permutation(perm, g.rank(x))}, x)
}

// Slice keeps start ≤ index < stop of one axis.
func (g *Graph) Slice(x *gorgonia.Node, axis, start, stop int) *gorgonia.Node {
	return g.Apply(kernels.Slice{Axis: wrap(axis, g.rank(x)), Start: start, Stop: stop}, x)
}

// Concat joins along one axis.
func (g *Graph) Concat(axis int, xs ...*gorgonia.Node) *gorgonia.Node {
	if len(xs) > 0 {
		axis = wrap(axis, g.rank(xs[0]))
	}
	return g.Apply(kernels.Concat{Axis: axis}, xs...)
}

// Embedding picks rows of table (n, d…) by int32 or int64 ids of any shape.
func (g *Graph) Embedding(table, ids *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Gather{}, table, ids)
}

// Softmax normalises e^x along one axis.
func (g *Graph) Softmax(x *gorgonia.Node, axis int) *gorgonia.Node {
	return g.Apply(kernels.Softmax{Axis: wrap(axis, g.rank(x))}, x)
}

// Attention is softmax(q·kᵀ/√d)·v for each head: q (b, t, heads, d), k and v (b, s, heads, d) → (b,
// t, heads, d), without a matrix of all scores in memory. With causal, row r of q sees the first
// s−t+r+1 rows of k and v alone.
func (g *Graph) Attention(q, k, v *gorgonia.Node, causal bool) *gorgonia.Node {
	outs := g.ApplyAll(kernels.Attention{Causal: causal}, q, k, v)
	if outs == nil {
		return nil
	}
	return outs[0]
}

// LogSoftmax is log(Softmax(x)), computed without overflow.
func (g *Graph) LogSoftmax(x *gorgonia.Node, axis int) *gorgonia.Node {
	return g.Apply(kernels.Softmax{Axis: wrap(axis, g.rank(x)), Log: true}, x)
}

// CrossEntropy is the mean over rows of −log softmax(logits)[label]: logits (n, classes), labels
// (n) int32 or int64.
func (g *Graph) CrossEntropy(logits, labels *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.CrossEntropy{}, logits, labels)
}

// LayerNorm normalises the last axis to mean 0 and variance 1, then scales by gamma and shifts by
// beta (Ba, Kiros and Hinton, arXiv:1607.06450).
func (g *Graph) LayerNorm(x, gamma, beta *gorgonia.Node, eps float64) *gorgonia.Node {
	i := kernels.LayerNorm{Eps: eps}
	if _, err := i.Infer([]kernels.Type{g.types[x], g.types[gamma], g.types[beta]}); err != nil { // not one number per column
		return g.Add(g.Mul(g.Apply(kernels.Normalize{Eps: eps}, x), gamma), beta)
	}
	return g.Apply(i, x, gamma, beta)
}

// Linear is x·w + b with w (in, out).
func (g *Graph) Linear(x, w, b *gorgonia.Node) *gorgonia.Node { return g.Add(g.MatMul(x, w), b) }

// Cast converts the dtype.
func (g *Graph) Cast(x *gorgonia.Node, to device.Dtype) *gorgonia.Node {
	return g.Apply(kernels.Cast{To: to}, x)
}

// wrap makes a negative axis count from the end; what is out of range stays so, for Infer to
// refuse.
func wrap(axis, rank int) int {
	if axis < 0 && axis >= -rank {
		return axis + rank
	}
	return axis
}

// normalised wraps axes; none at all means every axis.
func normalised(axes []int, rank int) []int {
	if len(axes) == 0 {
		return nil
	}
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = wrap(a, rank)
	}
	return out
}

// permutation fills in the default and wraps negative axes.
func permutation(perm []int, rank int) []int {
	out := make([]int, max(len(perm), rank))
	if len(perm) > 0 {
		return normalised(perm, rank)
	}
	for i := range out {
		out[i] = rank - 1 - i
	}
	return out
}

// inferredShape fills in a single −1.
func inferredShape(from device.Shape, shape []int) device.Shape {
	out := device.Shape(shape).Clone()
	hole, rest := -1, 1
	for i, d := range out {
		if d == -1 && hole < 0 {
			hole = i
		} else {
			rest *= d
		}
	}
	if hole >= 0 && rest > 0 && from.Elems()%rest == 0 {
		out[hole] = from.Elems() / rest
	}
	return out
}
