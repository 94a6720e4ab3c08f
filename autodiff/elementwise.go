package autodiff

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/kernels"
)

// More elementwise ops, for graphs and for tensors.

// Abs is the absolute value; at 0 its gradient is 0.
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

// Pow is a to the b.
func (g *Graph) Pow(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Pow, a, b) }

// Maximum is the larger of two; where they are equal the gradient is a's.
func (g *Graph) Maximum(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Maximum, a, b) }

// Minimum is the smaller of two; where they are equal the gradient is a's.
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

// Abs is the absolute value; at 0 its gradient is 0.
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

// Pow is a to the b.
func Pow(a, b *Tensor) *Tensor { return binary(kernels.Pow, a, b) }

// Maximum is the larger of two; where they are equal the gradient is a's.
func Maximum(a, b *Tensor) *Tensor { return binary(kernels.Maximum, a, b) }

// Minimum is the smaller of two; where they are equal the gradient is a's.
func Minimum(a, b *Tensor) *Tensor { return binary(kernels.Minimum, a, b) }

// Less is 1 where a < b, else 0. No gradient flows through it.
func Less(a, b *Tensor) *Tensor { return binary(kernels.Less, a, b) }

// LessEqual is 1 where a ≤ b, else 0. No gradient flows through it.
func LessEqual(a, b *Tensor) *Tensor { return binary(kernels.LessEqual, a, b) }

// Equal is 1 where a = b, else 0. No gradient flows through it.
func Equal(a, b *Tensor) *Tensor { return binary(kernels.Equal, a, b) }

// flat says that the instruction's derivative is 0 wherever there is one, so that no gradient need pass.
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
	kernels.Abs: one(func(v *vjp) node {
		zero := v.zero(v.in[0])
		return v.Mul(v.gy, v.Sub(v.Less(zero, v.in[0]), v.Less(v.in[0], zero)))
	}),
	kernels.Sin:      one(func(v *vjp) node { return v.Mul(v.gy, v.Cos(v.in[0])) }),
	kernels.Cos:      one(func(v *vjp) node { return v.Neg(v.Mul(v.gy, v.Sin(v.in[0]))) }),
	kernels.Log1p:    one(func(v *vjp) node { return v.Div(v.gy, v.Shift(v.in[0], 1)) }),
	kernels.Expm1:    one(func(v *vjp) node { return v.Mul(v.gy, v.Shift(v.y, 1)) }),
	kernels.Softplus: one(func(v *vjp) node { return v.Mul(v.gy, v.Sigmoid(v.in[0])) }),
}

// powRule: b·a^(b−1), which is 0 where b is 0, also for a = 0; and y·log(a), which is 0 where a is 0.
func powRule(v *vjp) []node {
	a, b, d := v.in[0], v.in[1], make([]node, 2)
	if v.need[0] {
		less := v.Shift(v.Add(b, v.Equal(b, v.zero(b))), -1)
		d[0] = v.Mul(v.gy, v.Mul(b, v.Pow(a, less)))
	}
	if v.need[1] {
		d[1] = v.Mul(v.gy, v.Mul(v.y, v.Log(v.Add(a, v.Equal(a, v.zero(a))))))
	}
	return d
}

// chosenRule is of Maximum and Minimum: first says where a is the result.
func chosenRule(first func(v *vjp) node) rule {
	return func(v *vjp) []node {
		d := []node{v.Mul(v.gy, first(v)), nil}
		if v.need[1] {
			d[1] = v.Sub(v.gy, d[0])
		}
		return d
	}
}

// zero is a scalar of x's dtype.
func (g *Graph) zero(x *gorgonia.Node) *gorgonia.Node { return g.constant(x, 0) }

// constant is a scalar of x's dtype.
func (g *Graph) constant(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Fill{Type: kernels.Type{Dtype: g.types[x].Dtype}, C: c})
}
