package expr

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/kernels"
)

// What rules write most. Users have these, and all others, as methods of autodiff's Graph.

func (g *Graph) unary(fn kernels.UnaryFn, x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: fn}, x)
}

func (g *Graph) binary(fn kernels.BinaryFn, a, b *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Binary{Fn: fn}, a, b)
}

func (g *Graph) register(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Add, a, b) }
func (g *Graph) sub(a, b *gorgonia.Node) *gorgonia.Node      { return g.binary(kernels.Sub, a, b) }
func (g *Graph) mul(a, b *gorgonia.Node) *gorgonia.Node      { return g.binary(kernels.Mul, a, b) }
func (g *Graph) div(a, b *gorgonia.Node) *gorgonia.Node      { return g.binary(kernels.Div, a, b) }
func (g *Graph) neg(x *gorgonia.Node) *gorgonia.Node         { return g.unary(kernels.Neg, x) }

func (g *Graph) equal(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(kernels.Equal, a, b) }

// scale is c·x.
func (g *Graph) scale(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Scale, C: c}, x)
}

// shift is x + c.
func (g *Graph) shift(x *gorgonia.Node, c float64) *gorgonia.Node {
	return g.Apply(kernels.Unary{Fn: kernels.Shift, C: c}, x)
}

// zero is a scalar of x's dtype.
func (g *Graph) zero(x *gorgonia.Node) *gorgonia.Node {
	return g.Apply(kernels.Fill{Type: kernels.Type{Dtype: g.types[x].Dtype}})
}
