package expr

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// rule gives the gradients of an op's operands from the gradient of its result: grad[j] belongs to
// operand j and has the operand's dtype; nil where there is none or v.need[j] is false. It may have
// the shape of the broadcast result: the caller undoes broadcasting.
type rule func(v *vjp) (grad []*gorgonia.Node)

// vjp is what a rule may look at.
type vjp struct {
	*Graph
	in   []*gorgonia.Node
	y    *gorgonia.Node // the result
	gy   *gorgonia.Node // its gradient
	need []bool

	result int // which of the instruction's results y is
}

type node = *gorgonia.Node

// one is for rules with one differentiable operand, the first.
func one(f func(v *vjp) node) rule {
	return func(v *vjp) []node { return []node{f(v)} }
}

// ruleOf is the table of gradient rules; nil for an instruction that is not differentiated.
func ruleOf(i kernels.Instr) rule {
	switch i := i.(type) {
	case kernels.Unary:
		f := unaryRules[i.Fn]
		if f == nil {
			return nil
		}
		return one(func(v *vjp) node { return f(v, i.C) })
	case kernels.Binary:
		return binaryRules[i.Fn]
	case kernels.MatMul:
		return matmulRule(i)
	case kernels.Reduce:
		return reduceRule(i)
	case kernels.BroadcastTo:
		return one(func(v *vjp) node { return v.gy }) // the sum is the caller's
	case kernels.Reshape:
		return one(func(v *vjp) node { return v.reshapeTo(v.gy, v.types[v.in[0]].Shape) })
	case kernels.Transpose:
		return one(func(v *vjp) node { return v.Apply(kernels.Transpose{Perm: inverse(i.Perm)}, v.gy) })
	case kernels.Slice:
		return one(func(v *vjp) node {
			return v.Apply(kernels.Pad{Axis: i.Axis, Before: i.Start, After: v.types[v.in[0]].Shape[i.Axis] - i.Stop}, v.gy)
		})
	case kernels.Pad:
		return one(func(v *vjp) node {
			return v.Apply(kernels.Slice{Axis: i.Axis, Start: i.Before, Stop: i.Before + v.types[v.in[0]].Shape[i.Axis]}, v.gy)
		})
	case kernels.Concat:
		return func(v *vjp) []node {
			d, at := make([]node, len(v.in)), 0
			for j, x := range v.in {
				n := v.types[x].Shape[i.Axis]
				if v.need[j] {
					d[j] = v.Apply(kernels.Slice{Axis: i.Axis, Start: at, Stop: at + n}, v.gy)
				}
				at += n
			}
			return d
		}
	case kernels.Gather:
		return one(func(v *vjp) node {
			return v.Apply(kernels.ScatterAdd{Rows: v.types[v.in[0]].Shape[0]}, v.in[1], v.gy)
		})
	case kernels.ScatterAdd:
		return func(v *vjp) []node { return []node{nil, v.Apply(kernels.Gather{}, v.gy, v.in[0])} }
	case kernels.Softmax:
		return one(func(v *vjp) node { return v.Apply(kernels.SoftmaxGrad{Axis: i.Axis, Log: i.Log}, v.y, v.gy) })
	case kernels.CrossEntropy:
		return one(func(v *vjp) node {
			return v.Apply(kernels.CrossEntropyGrad(i), v.in[0], v.in[1], v.gy)
		})
	case kernels.Normalize:
		return one(func(v *vjp) node { return v.Apply(kernels.NormalizeGrad{Eps: i.Eps}, v.in[0], v.gy) })
	case kernels.LayerNorm:
		return func(v *vjp) []node { return v.ApplyAll(kernels.LayerNormGrad{Eps: i.Eps}, v.in[0], v.in[1], v.gy) }
	case kernels.Attention:
		return attentionRule(i)
	case kernels.Cast:
		return one(func(v *vjp) node { return v.Apply(kernels.Cast{To: v.types[v.in[0]].Dtype}, v.gy) })
	}
	return imageRule(i)
}

// matmulRule: with C = op(A)·op(B), dop(A) = dC·op(B)ᵀ and dop(B) = op(A)ᵀ·dC; a transposed operand
// takes the transpose.
func matmulRule(i kernels.MatMul) rule {
	return func(v *vjp) []node {
		d := make([]node, 2)
		a, b := v.in[0], v.in[1]
		mm := func(x, y node, tx, ty bool) node { return v.Apply(kernels.MatMul{TransA: tx, TransB: ty}, x, y) }
		if v.need[0] {
			if i.TransA {
				d[0] = mm(b, v.gy, i.TransB, true)
			} else {
				d[0] = mm(v.gy, b, false, !i.TransB)
			}
		}
		if v.need[1] {
			if i.TransB {
				d[1] = mm(v.gy, a, true, i.TransA)
			} else {
				d[1] = mm(a, v.gy, !i.TransA, false)
			}
		}
		return d
	}
}

func reduceRule(i kernels.Reduce) rule {
	return one(func(v *vjp) node {
		x := v.types[v.in[0]].Shape
		if i.Fn == kernels.Max {
			return v.Apply(kernels.MaxGrad{Axes: i.Axes, Keep: i.Keep}, v.in[0], v.y, v.gy)
		}
		gy := v.gy
		if i.Fn == kernels.Mean && x.Elems() > 0 {
			gy = v.scale(gy, float64(v.types[v.y].Shape.Elems())/float64(x.Elems()))
		}
		return v.Apply(kernels.BroadcastTo{Shape: x.Clone()}, v.reshapeTo(gy, keptShape(x, i.Axes)))
	})
}

// attentionRule reads both results. The logarithms are for the gradient alone, and have none.
func attentionRule(i kernels.Attention) rule {
	return func(v *vjp) []node {
		if v.result != 0 {
			v.Fail(i.String(), fmt.Errorf("%w: the logarithms of the sums have none", ErrGradient))
			return nil
		}
		if i.Masked && v.need[3] {
			v.Fail(i.String(), fmt.Errorf("%w: the mask has none", ErrGradient))
			return nil
		}
		in := append([]node{v.in[0], v.in[1], v.in[2], v.y, v.beside(v.y, 1), v.gy}, v.in[3:]...)
		return v.ApplyAll(kernels.AttentionGrad{Causal: i.Causal, Masked: i.Masked, Drop: i.Drop}, in...)
	}
}

// keptShape is x with the reduced axes (nil: all) at extent 1.
func keptShape(x device.Shape, axes []int) device.Shape {
	s := x.Clone()
	for a := range s {
		if axes == nil || slices.Contains(axes, a) {
			s[a] = 1
		}
	}
	return s
}

func inverse(perm []int) []int {
	inv := make([]int, len(perm))
	for i, p := range perm {
		inv[p] = i
	}
	return inv
}
