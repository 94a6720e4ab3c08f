package autodiff

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/kernels"
)

// More elementwise ops, for graphs and for tensors.

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

func (g *Graph) unary(fn kernels.UnaryFn, x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: fn}, x)
}

func (g *Graph) binary(fn kernels.BinaryFn, a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: fn}, a, b)
}

// Abs is the absolute value; at 0 its gradient is 0, whatever comes from above: PyTorch's is NaN
// there where that is infinite.
func Abs(x *Tensor) *Tensor { return unary(kernels.Abs, x) }

// Ceil rounds up. No gradient flows through it.
func Ceil(x *Tensor) *Tensor { return unary(kernels.Ceil, x) }

// Floor rounds down. No gradient flows through it.
func Floor(x *Tensor) *Tensor { return unary(kernels.Floor, x) }

// Sin is the sine of radians.
func Sin(x *Tensor) *Tensor { return unary(kernels.Sin, x) }

// Cos is the cosine of radians.
func Cos(x *Tensor) *Tensor { return unary(kernels.Cos, x) }

// Log1p is log(1+x), exact near 0.
func Log1p(x *Tensor) *Tensor { return unary(kernels.Log1p, x) }

// Expm1 is e^x−1, exact near 0.
func Expm1(x *Tensor) *Tensor { return unary(kernels.Expm1, x) }

// Softplus is log(1+e^x), computed without overflow.
func Softplus(x *Tensor) *Tensor { return unary(kernels.Softplus, x) }

// Pow is a to the b. Where b is 0, or a is 0 and b is not negative, it is constant: the gradient of
// a, or of b, is 0 whatever comes from above.
func Pow(a, b *Tensor) *Tensor { return binary(kernels.Pow, a, b) }

// Maximum is the larger of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func Maximum(a, b *Tensor) *Tensor { return binary(kernels.Maximum, a, b) }

// Minimum is the smaller of two; where they are equal each gets half of the gradient, and where one
// is NaN, which the result is then too, each gets all of it.
func Minimum(a, b *Tensor) *Tensor { return binary(kernels.Minimum, a, b) }

// Less is 1 where a < b, else 0. No gradient flows through it.
func Less(a, b *Tensor) *Tensor { return binary(kernels.Less, a, b) }

// LessEqual is 1 where a ≤ b, else 0. No gradient flows through it.
func LessEqual(a, b *Tensor) *Tensor { return binary(kernels.LessEqual, a, b) }

// Equal is 1 where a = b, else 0. No gradient flows through it.
func Equal(a, b *Tensor) *Tensor { return binary(kernels.Equal, a, b) }

// flat says that the instruction's derivative is 0 wherever there is one, so that no gradient need
// pass.
func flat(i kernels.Instr) bool {
	switch i := i.(type) {
	case kernels.Unary:
		return i.Fn == kernels.Ceil || i.Fn == kernels.Floor
	case kernels.Binary:
		return i.Fn == kernels.Less || i.Fn == kernels.LessEqual || i.Fn == kernels.Equal
	}
	return false
}

// moreUnaryRules is looked at by unaryRule.
var moreUnaryRules = map[kernels.UnaryFn]rule{
	kernels.Abs:      one(func(v *vjp) node { return v.Sub(v.where(v.in[0], v.gy), v.where(v.Neg(v.in[0]), v.gy)) }),
	kernels.Sin:      one(func(v *vjp) node { return v.Mul(v.gy, v.Cos(v.in[0])) }),
	kernels.Cos:      one(func(v *vjp) node { return v.Neg(v.Mul(v.gy, v.Sin(v.in[0]))) }),
	kernels.Log1p:    one(func(v *vjp) node { return v.Div(v.gy, v.Shift(v.in[0], 1)) }),
	kernels.Expm1:    one(func(v *vjp) node { return v.Mul(v.gy, v.Shift(v.y, 1)) }),
	kernels.Softplus: one(func(v *vjp) node { return v.Mul(v.gy, v.Sigmoid(v.in[0])) }),
}

// powRule: b·a^(b−1), and 0 where b is 0; y·log(a), and 0 where a is 0 and b is not negative. There
// a^b is constant.
func powRule(v *vjp) []node {
	a, b, d := v.in[0], v.in[1], make([]node, 2)
	if v.need[0] {
		d[0] = v.unless(v.Equal(b, v.zero(b)), v.Mul(v.gy, v.Mul(b, v.Pow(a, v.Shift(b, -1)))))
	}
	if v.need[1] {
		constant := v.Mul(v.Equal(a, v.zero(a)), v.LessEqual(v.zero(b), b))
		d[1] = v.unless(constant, v.Mul(v.gy, v.Mul(v.y, v.Log(a))))
	}
	return d
}

// chosenRule is of Maximum and Minimum: loses says where the one is not the result. NaN loses to
// nothing, and equals nothing.
func chosenRule(loses func(v *vjp, one, other node) node) rule {
	return func(v *vjp) []node {
		d, tie := make([]node, 2), v.Equal(v.in[0], v.in[1])
		shared := v.Mul(v.gy, v.Shift(v.Scale(tie, -0.5), 1))
		for j := range d {
			if v.need[j] {
				d[j] = v.unless(loses(v, v.in[j], v.in[1-j]), shared)
			}
		}
		return d
	}
}

// unless is x where is, of ones and zeros, is 0; and 0 elsewhere. A product with a mask would make
// NaN of what is infinite there.
func (v *vjp) unless(is, x node) node {
	return v.where(v.Shift(v.Neg(is), 1), x)
}

// where is x where positive is, or is NaN; and 0 elsewhere.
func (v *vjp) where(positive, x node) node {
	return v.Apply(kernels.Binary{Fn: kernels.ReluGrad}, positive, x)
}

// zero is a scalar of x's dtype.
func (g *Graph) zero(x *gorgonia.Node) *gorgonia.Node { return g.constant(x, 0) }

// constant is a scalar of x's dtype.
func (g *Graph) constant(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Fill{Type: kernels.Type{Dtype: g.types[x].Dtype}, C: c})
}
