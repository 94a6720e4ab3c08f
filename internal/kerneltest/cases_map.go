package kerneltest

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// mapCase draws an expression over operands that broadcast to a shape, which now and then takes
// more than one tile.
func (g gen) mapCase(d device.Dtype) (kernels.Map, []Tensor) {
	s := g.shape(0)
	if g.chance(0.15) {
		s = device.Shape{1 + g.IntN(4), 1 + g.IntN(900), 1 + g.IntN(5)}
		g.Shuffle(len(s), func(a, b int) { s[a], s[b] = s[b], s[a] })
	}
	in := []Tensor{g.tensor(d, s)}
	for range g.IntN(4) {
		in = append(in, g.tensor(d, g.thinned(s)))
	}
	if g.chance(0.2) {
		in[0] = g.tensor(d, g.thinned(s))
	}
	return g.expression(s, len(in)), in
}

// expression is a map over operands of a shape.
func (g gen) expression(s device.Shape, operands int) kernels.Map {
	i := kernels.Map{Shape: s}
	for k := range g.IntN(8) {
		reg := func() int { // mostly a late one, so that chains get long
			n := operands + k
			return max(g.IntN(n), g.IntN(n))
		}
		step := kernels.Step{Args: [2]int{reg(), reg()}}
		if g.chance(0.4) {
			step.Op = kernels.Unary{Fn: kernels.UnaryFn(g.IntN(kernels.UnaryFns)), C: g.NormFloat64()}
		} else {
			step.Op = kernels.Binary{Fn: kernels.BinaryFn(g.IntN(kernels.BinaryFns))}
		}
		i.Steps = append(i.Steps, step)
	}
	n := operands + len(i.Steps)
	for range 1 + g.IntN(3) {
		o := kernels.Out{Reg: max(g.IntN(n), g.IntN(n))}
		if g.chance(0.4) {
			o.Fold = &kernels.Reduce{Fn: kernels.ReduceFn(g.IntN(3)), Axes: g.axes(len(s)), Keep: g.chance(0.5)}
			if s.Elems() == 0 {
				o.Fold.Fn = kernels.Sum
			}
		}
		i.Outs = append(i.Outs, o)
	}
	return i
}

// view hides a tensor in a larger one: its axes in another order, with gaps and elements around it,
// or repeated.
func (g gen) view(x Tensor) (Tensor, *kernels.View) {
	v := &kernels.View{Shape: x.Shape, Offset: g.IntN(5), Strides: make([]int, len(x.Shape))}
	size, step := x.Shape.Clone(), 1
	for _, axis := range g.Perm(len(size)) {
		v.Strides[axis] = step
		if g.chance(0.1) {
			v.Strides[axis], size[axis] = 0, 1
		}
		step *= size[axis] + g.IntN(2)*g.IntN(3)
	}
	last := v.Offset
	for k, n := range x.Shape {
		last += max(n-1, 0) * v.Strides[k]
	}
	big := device.Shape{last + 1 + g.IntN(4)}
	if x.Shape.Elems() == 0 {
		v.Offset = 0
	}
	return g.tensor(x.Dtype, big), v
}

// viewed makes some operands of an instruction views.
func (g gen) viewed(of kernels.Instr, in []Tensor) (kernels.Viewed, []Tensor) {
	i, in := kernels.Viewed{Of: of, In: make([]*kernels.View, len(in))}, slices.Clone(in)
	for k := range in {
		if g.chance(0.7) {
			in[k], i.In[k] = g.view(in[k])
		}
	}
	return i, in
}
