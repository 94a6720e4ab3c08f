package autodiff

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Graph is a Gorgonia graph under construction: the first argument of the body given to [Define].
// Its methods apply Weft's ops to nodes. The first mistake is kept and reported by the call that
// compiles the function; after it, methods return nil.
type Graph struct{ of *expr.Graph }

// Op is an instruction as a node of a Gorgonia graph; it has Gorgonia's methods of an op.
type Op = expr.Op

// Apply applies an instruction with one result to nodes of g.
func (g *Graph) Apply(i kernels.Instr, in ...*gorgonia.Node) *gorgonia.Node {
	return g.of.Apply(i, in...)
}

// ApplyAll applies an instruction to nodes of g and gives a node for each of its results.
func (g *Graph) ApplyAll(i kernels.Instr, in ...*gorgonia.Node) []*gorgonia.Node {
	return g.of.ApplyAll(i, in...)
}

// Type is the dtype and shape of a node of g; the zero Type for any other node.
func (g *Graph) Type(n *gorgonia.Node) kernels.Type { return g.of.Type(n) }

// Err is the first mistake, nil where there is none so far.
func (g *Graph) Err() error { return g.of.Err() }

// ExprGraph is g so far as a Gorgonia graph, to walk or to draw. In a function's body it is a copy,
// with nodes of its own.
func (g *Graph) ExprGraph() *gorgonia.ExprGraph { return g.of.ExprGraph() }

// rank of a node, 0 for a foreign or nil one (Apply will refuse it).
func (g *Graph) rank(n *gorgonia.Node) int { return len(g.Type(n).Shape) }

// The ops of a graph. Shapes broadcast as in NumPy. A negative axis counts from the last one.

// Add is a + b.
func (g *Graph) Add(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Add, a, b)
}

// Sub is a − b.
func (g *Graph) Sub(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Sub, a, b)
}

// Mul is the elementwise product a·b.
func (g *Graph) Mul(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Mul, a, b)
}

// Div is the elementwise quotient a/b.
func (g *Graph) Div(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Div, a, b)
}

// Neg is −x.
func (g *Graph) Neg(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Neg, x)
}

// Exp is e to the x.
func (g *Graph) Exp(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Exp, x)
}

// Log is the natural logarithm.
func (g *Graph) Log(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Log, x)
}

// Sqrt is the square root.
func (g *Graph) Sqrt(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Sqrt, x)
}

// Tanh is the hyperbolic tangent.
func (g *Graph) Tanh(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Tanh, x)
}

// Sigmoid is 1/(1+e^−x).
func (g *Graph) Sigmoid(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Sigmoid, x)
}

// ReLU is max(x, 0), and NaN where x is, where its gradient passes as PyTorch's does.
func (g *Graph) ReLU(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Relu, x)
}

// GELU is x·Φ(x), exact (Hendrycks and Gimpel, arXiv:1606.08415). Of −∞ it is 0, and so is its
// gradient, which of ∞ is 1: the limits, where PyTorch's are NaN.
func (g *Graph) GELU(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Gelu, x)
}

// Scale is c·x.
func (g *Graph) Scale(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Scale, C: c}, x)
}

// Shift is x + c.
func (g *Graph) Shift(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Shift, C: c}, x)
}

// Abs is the absolute value; at 0 its gradient is 0, whatever comes from above: PyTorch's is NaN
// there where that is infinite.
func (g *Graph) Abs(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Abs, x) }

// Ceil rounds up. No gradient flows through it.
func (g *Graph) Ceil(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Ceil, x) }

// Floor rounds down. No gradient flows through it.
func (g *Graph) Floor(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Floor, x) }

// Sin is the sine of radians.
func (g *Graph) Sin(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Sin, x) }

// Cos is the cosine of radians.
func (g *Graph) Cos(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Cos, x) }

// Log1p is log(1+x), exact near 0.
func (g *Graph) Log1p(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Log1p, x) }

// Expm1 is e^x−1, exact near 0.
func (g *Graph) Expm1(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Expm1, x) }

// Softplus is log(1+e^x), computed without overflow.
func (g *Graph) Softplus(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Softplus, x) }

// Pow is a to the b. Where b is 0, or a is 0 and b is not negative, it is constant: the gradient of
// a, or of b, is 0 whatever comes from above.
func (g *Graph) Pow(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Pow, a, b) }

// Maximum is the larger of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func (g *Graph) Maximum(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Maximum, a, b) }

// Minimum is the smaller of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func (g *Graph) Minimum(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Minimum, a, b) }

// Less is 1 where a < b, else 0. No gradient flows through it.
func (g *Graph) Less(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Less, a, b) }

// LessEqual is 1 where a ≤ b, else 0. No gradient flows through it.
func (g *Graph) LessEqual(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.LessEqual, a, b)
}

// Equal is 1 where a = b, else 0. No gradient flows through it.
func (g *Graph) Equal(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Equal, a, b) }

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
	return g.Apply(kernels.Reshape{Shape: inferredShape(g.Type(x).Shape, shape)}, x)
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
	if _, err := i.Infer([]kernels.Type{g.Type(x), g.Type(gamma), g.Type(beta)}); err != nil { // not one number per column
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

func (g *Graph) unary(fn kernels.UnaryFn, x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: fn}, x)
}

func (g *Graph) binary(fn kernels.BinaryFn, a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: fn}, a, b)
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
