package autodiff

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// The elementwise ops: for each the function on tensors, and the method for bodies of functions.
// Shapes broadcast as in NumPy, here and in all files of ops.

// Add is a + b. Shapes broadcast as in NumPy, here and below.
func Add(a, b *Tensor) *Tensor { return binary(kernels.Add, a, b) }

// Add is a + b.
func (g *Graph) Add(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Add, a, b)
}

// Sub is a − b.
func Sub(a, b *Tensor) *Tensor { return binary(kernels.Sub, a, b) }

// Sub is a − b.
func (g *Graph) Sub(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Sub, a, b)
}

// Mul is the elementwise product a·b.
func Mul(a, b *Tensor) *Tensor { return binary(kernels.Mul, a, b) }

// Mul is the elementwise product a·b.
func (g *Graph) Mul(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Mul, a, b)
}

// Div is the elementwise quotient a/b.
func Div(a, b *Tensor) *Tensor { return binary(kernels.Div, a, b) }

// Div is the elementwise quotient a/b.
func (g *Graph) Div(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.Div, a, b)
}

// Neg is −x.
func Neg(x *Tensor) *Tensor { return unary(kernels.Neg, x) }

// Neg is −x.
func (g *Graph) Neg(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Neg, x)
}

// Exp is e to the x.
func Exp(x *Tensor) *Tensor { return unary(kernels.Exp, x) }

// Exp is e to the x.
func (g *Graph) Exp(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Exp, x)
}

// Log is the natural logarithm.
func Log(x *Tensor) *Tensor { return unary(kernels.Log, x) }

// Log is the natural logarithm.
func (g *Graph) Log(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Log, x)
}

// Sqrt is the square root.
func Sqrt(x *Tensor) *Tensor { return unary(kernels.Sqrt, x) }

// Sqrt is the square root.
func (g *Graph) Sqrt(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Sqrt, x)
}

// Tanh is the hyperbolic tangent.
func Tanh(x *Tensor) *Tensor { return unary(kernels.Tanh, x) }

// Tanh is the hyperbolic tangent.
func (g *Graph) Tanh(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Tanh, x)
}

// Sigmoid is 1/(1+e^−x).
func Sigmoid(x *Tensor) *Tensor { return unary(kernels.Sigmoid, x) }

// Sigmoid is 1/(1+e^−x).
func (g *Graph) Sigmoid(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Sigmoid, x)
}

// ReLU is max(x, 0), and NaN where x is, where its gradient passes as PyTorch's does.
func ReLU(x *Tensor) *Tensor { return unary(kernels.Relu, x) }

// ReLU is max(x, 0), and NaN where x is, where its gradient passes as PyTorch's does.
func (g *Graph) ReLU(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Relu, x)
}

// GELU is x·Φ(x), exact. Of −∞ it is 0, and so is its gradient, which
// of ∞ is 1: the limits, where PyTorch's are NaN.
func GELU(x *Tensor) *Tensor { return unary(kernels.Gelu, x) }

// GELU is x·Φ(x), exact (Hendrycks and Gimpel, arXiv:1606.08415). Of −∞ it is 0, and so is its
// gradient, which of ∞ is 1: the limits, where PyTorch's are NaN.
func (g *Graph) GELU(x *gorgonia.Node) *gorgonia.Node {
	return g.unary(kernels.Gelu, x)
}

var opScale = scalar("Scale", (*Graph).Scale)

// Scale is c·x.
func Scale(x *Tensor, c float64) *Tensor { return opScale.withNumber(c, x) }

// Scale is c·x.
func (g *Graph) Scale(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Scale, C: c}, x)
}

var opShift = scalar("Shift", (*Graph).Shift)

// Shift is x + c.
func Shift(x *Tensor, c float64) *Tensor { return opShift.withNumber(c, x) }

// Shift is x + c.
func (g *Graph) Shift(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Shift, C: c}, x)
}

// Abs is the absolute value; at 0 its gradient is 0, whatever comes from above: PyTorch's is NaN
// there where that is infinite.
func Abs(x *Tensor) *Tensor { return unary(kernels.Abs, x) }

// Abs is the absolute value; at 0 its gradient is 0, whatever comes from above: PyTorch's is NaN
// there where that is infinite.
func (g *Graph) Abs(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Abs, x) }

// Ceil rounds up. No gradient flows through it.
func Ceil(x *Tensor) *Tensor { return unary(kernels.Ceil, x) }

// Ceil rounds up. No gradient flows through it.
func (g *Graph) Ceil(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Ceil, x) }

// Floor rounds down. No gradient flows through it.
func Floor(x *Tensor) *Tensor { return unary(kernels.Floor, x) }

// Floor rounds down. No gradient flows through it.
func (g *Graph) Floor(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Floor, x) }

// Sin is the sine of radians.
func Sin(x *Tensor) *Tensor { return unary(kernels.Sin, x) }

// Sin is the sine of radians.
func (g *Graph) Sin(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Sin, x) }

// Cos is the cosine of radians.
func Cos(x *Tensor) *Tensor { return unary(kernels.Cos, x) }

// Cos is the cosine of radians.
func (g *Graph) Cos(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Cos, x) }

// Log1p is log(1+x), exact near 0.
func Log1p(x *Tensor) *Tensor { return unary(kernels.Log1p, x) }

// Log1p is log(1+x), exact near 0.
func (g *Graph) Log1p(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Log1p, x) }

// Expm1 is e^x−1, exact near 0.
func Expm1(x *Tensor) *Tensor { return unary(kernels.Expm1, x) }

// Expm1 is e^x−1, exact near 0.
func (g *Graph) Expm1(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Expm1, x) }

// Softplus is log(1+e^x), computed without overflow.
func Softplus(x *Tensor) *Tensor { return unary(kernels.Softplus, x) }

// Softplus is log(1+e^x), computed without overflow.
func (g *Graph) Softplus(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Softplus, x) }

// Softsign is x/(1+|x|). Of ±∞ it is ±1 and its gradient 0: the limits, where PyTorch's are NaN.
func Softsign(x *Tensor) *Tensor { return unary(kernels.Softsign, x) }

// Softsign is x/(1+|x|). Of ±∞ it is ±1 and its gradient 0: the limits, where PyTorch's are NaN.
func (g *Graph) Softsign(x *gorgonia.Node) *gorgonia.Node { return g.unary(kernels.Softsign, x) }

// Pow is a to the b. Where b is 0, or a is 0 and b is not negative, it is constant: the gradient of
// a, or of b, is 0 whatever comes from above.
func Pow(a, b *Tensor) *Tensor { return binary(kernels.Pow, a, b) }

// Pow is a to the b. Where b is 0, or a is 0 and b is not negative, it is constant: the gradient of
// a, or of b, is 0 whatever comes from above.
func (g *Graph) Pow(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Pow, a, b) }

// Maximum is the larger of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func Maximum(a, b *Tensor) *Tensor { return binary(kernels.Maximum, a, b) }

// Maximum is the larger of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func (g *Graph) Maximum(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Maximum, a, b) }

// Minimum is the smaller of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func Minimum(a, b *Tensor) *Tensor { return binary(kernels.Minimum, a, b) }

// Minimum is the smaller of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func (g *Graph) Minimum(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Minimum, a, b) }

// Less is 1 where a < b, else 0. No gradient flows through it.
func Less(a, b *Tensor) *Tensor { return binary(kernels.Less, a, b) }

// Less is 1 where a < b, else 0. No gradient flows through it.
func (g *Graph) Less(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Less, a, b) }

// LessEqual is 1 where a ≤ b, else 0. No gradient flows through it.
func LessEqual(a, b *Tensor) *Tensor { return binary(kernels.LessEqual, a, b) }

// LessEqual is 1 where a ≤ b, else 0. No gradient flows through it.
func (g *Graph) LessEqual(a, b *gorgonia.Node) *gorgonia.Node {
	return g.binary(kernels.LessEqual, a, b)
}

// Equal is 1 where a = b, else 0. No gradient flows through it.
func Equal(a, b *Tensor) *Tensor { return binary(kernels.Equal, a, b) }

// Equal is 1 where a = b, else 0. No gradient flows through it.
func (g *Graph) Equal(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Equal, a, b) }

var opCast = listed("Cast", func(g *Graph, x *gorgonia.Node, to ...int) *gorgonia.Node { return g.Cast(x, device.Dtype(to[0])) })

// Cast converts the dtype.
func Cast(x *Tensor, to device.Dtype) *Tensor { return opCast.withList(x, []int{int(to)}) }

// Cast converts the dtype.
func (g *Graph) Cast(x *gorgonia.Node, to device.Dtype) *gorgonia.Node {
	return g.Apply(kernels.Cast{To: to}, x)
}

var (
	unaries  = functions(func(fn kernels.UnaryFn) kernels.Instr { return kernels.Unary{Fn: fn} })
	binaries = functions(func(fn kernels.BinaryFn) kernels.Instr { return kernels.Binary{Fn: fn} })
)

func unary(fn kernels.UnaryFn, x *Tensor) *Tensor      { return unaries[fn].Call(x) }
func binary(fn kernels.BinaryFn, a, b *Tensor) *Tensor { return binaries[fn].Call(a, b) }

func (g *Graph) unary(fn kernels.UnaryFn, x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: fn}, x)
}

func (g *Graph) binary(fn kernels.BinaryFn, a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: fn}, a, b)
}
