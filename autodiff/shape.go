package autodiff

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// The ops that add along axes, and those that move. A negative axis counts from the last one.

var opSum = listed("Sum", (*Graph).Sum)

// Sum adds over axes (negative ones count from the last) and drops them; over all where none are
// given.
func Sum(x *Tensor, axes ...int) *Tensor { return opSum.withList(x, axes) }

// Sum adds over axes and drops them; over all axes where none are given.
func (g *Graph) Sum(x *gorgonia.Node, axes ...int) *gorgonia.Node {
	return g.reduce(kernels.Sum, x, axes)
}

var opMean = listed("Mean", (*Graph).Mean)

// Mean averages over axes and drops them.
func Mean(x *Tensor, axes ...int) *Tensor { return opMean.withList(x, axes) }

// Mean averages over axes and drops them.
func (g *Graph) Mean(x *gorgonia.Node, axes ...int) *gorgonia.Node {
	return g.reduce(kernels.Mean, x, axes)
}

var opMax = listed("Max", (*Graph).Max)

// Max is the largest over axes, which it drops; where several are largest the gradient is shared.
func Max(x *Tensor, axes ...int) *Tensor { return opMax.withList(x, axes) }

// Max is the largest over axes, which it drops; where several are largest the gradient is shared,
// and where some are NaN, by those.
func (g *Graph) Max(x *gorgonia.Node, axes ...int) *gorgonia.Node {
	return g.reduce(kernels.Max, x, axes)
}

func (g *Graph) reduce(fn kernels.ReduceFn, x *gorgonia.Node, axes []int) *gorgonia.Node {
	return g.Apply(kernels.Reduce{Fn: fn, Axes: normalised(axes, g.rank(x))}, x)
}

var opReshape = listed("Reshape", (*Graph).Reshape)

// Reshape keeps the elements in order under another shape; one extent may be −1. It copies nothing.
func Reshape(x *Tensor, shape ...int) *Tensor { return opReshape.withList(x, shape) }

// Reshape keeps the elements in order under another shape; one extent may be −1.
func (g *Graph) Reshape(x *gorgonia.Node, shape ...int) *gorgonia.Node {
	return g.Apply(kernels.Reshape{Shape: inferredShape(g.Type(x).Shape, shape)}, x)
}

var opBroadcastTo = listed("BroadcastTo", (*Graph).BroadcastTo)

// BroadcastTo repeats x along new axes and along axes of extent 1.
func BroadcastTo(x *Tensor, shape ...int) *Tensor { return opBroadcastTo.withList(x, shape) }

// BroadcastTo repeats x along new axes and along axes of extent 1.
func (g *Graph) BroadcastTo(x *gorgonia.Node, shape ...int) *gorgonia.Node {
	return g.Apply(kernels.BroadcastTo{Shape: device.Shape(shape).Clone()}, x)
}

var opTranspose = listed("Transpose", (*Graph).Transpose)

// Transpose permutes axes; without perm it reverses them.
func Transpose(x *Tensor, perm ...int) *Tensor { return opTranspose.withList(x, perm) }

// Transpose permutes axes; without perm it reverses them.
func (g *Graph) Transpose(x *gorgonia.Node, perm ...int) *gorgonia.Node {
	return g.Apply(kernels.Transpose{Perm: permutation(perm, g.rank(x))}, x)
}

var opSlice = listed("Slice", func(g *Graph, x *gorgonia.Node, at ...int) *gorgonia.Node { return g.Slice(x, at[0], at[1], at[2]) })

// Slice keeps start ≤ index < stop of one axis.
func Slice(x *Tensor, axis, start, stop int) *Tensor {
	return opSlice.withList(x, []int{axis, start, stop})
}

// Slice keeps start ≤ index < stop of one axis.
func (g *Graph) Slice(x *gorgonia.Node, axis, start, stop int) *gorgonia.Node {
	return g.Apply(kernels.Slice{Axis: wrap(axis, g.rank(x)), Start: start, Stop: stop}, x)
}

var opConcat = parametrise("Concat", func(g *Graph, in []*gorgonia.Node, p *parameters) *gorgonia.Node {
	return g.Concat(p.list[0], in...)
})

// Concat joins tensors along one axis.
func Concat(axis int, xs ...*Tensor) *Tensor {
	p := parameters{op: opConcat, n: 1, list: [device.MaxRank]int{axis}}
	return p.function().Call(xs...)
}

// Concat joins along one axis.
func (g *Graph) Concat(axis int, xs ...*gorgonia.Node) *gorgonia.Node {
	if len(xs) > 0 {
		axis = wrap(axis, g.rank(xs[0]))
	}
	return g.Apply(kernels.Concat{Axis: axis}, xs...)
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
