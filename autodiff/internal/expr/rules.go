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
		return unaryRule(i)
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
		return one(func(v *vjp) node { return v.Apply(kernels.CrossEntropyGrad{}, v.in[0], v.in[1], v.gy) })
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

func unaryRule(i kernels.Unary) rule {
	switch i.Fn {
	case kernels.Neg:
		return one(func(v *vjp) node { return v.neg(v.gy) })
	case kernels.Exp:
		return one(func(v *vjp) node { return v.mul(v.gy, v.y) })
	case kernels.Log:
		return one(func(v *vjp) node { return v.div(v.gy, v.in[0]) })
	case kernels.Sqrt:
		return one(func(v *vjp) node { return v.div(v.gy, v.scale(v.y, 2)) })
	case kernels.Tanh:
		return one(func(v *vjp) node { return v.Apply(kernels.Binary{Fn: kernels.TanhGrad}, v.y, v.gy) })
	case kernels.Sigmoid:
		return one(func(v *vjp) node { return v.Apply(kernels.Binary{Fn: kernels.SigmoidGrad}, v.y, v.gy) })
	case kernels.Relu:
		// y is positive, or NaN, where x is, and is kept anyway by whatever reads it.
		return one(func(v *vjp) node { return v.where(v.y, v.gy) })
	case kernels.Gelu:
		return one(func(v *vjp) node { return v.Apply(kernels.Binary{Fn: kernels.GeluGrad}, v.in[0], v.gy) })
	case kernels.Scale:
		return one(func(v *vjp) node { return v.scale(v.gy, i.C) })
	case kernels.Shift:
		return one(func(v *vjp) node { return v.gy })
	}
	return moreUnaryRules[i.Fn]
}

// binaryRules has no entry for the functions that are gradients themselves.
var binaryRules = map[kernels.BinaryFn]rule{
	kernels.Add: func(v *vjp) []node { return []node{v.gy, v.gy} },
	kernels.Sub: func(v *vjp) []node {
		d := []node{v.gy, nil}
		if v.need[1] {
			d[1] = v.neg(v.gy)
		}
		return d
	},
	kernels.Mul: func(v *vjp) []node {
		d := make([]node, 2)
		for j := range 2 {
			if v.need[j] {
				d[j] = v.mul(v.gy, v.in[1-j])
			}
		}
		return d
	},
	kernels.Div: func(v *vjp) []node {
		d := make([]node, 2)
		if v.need[0] {
			d[0] = v.div(v.gy, v.in[1])
		}
		if v.need[1] { // −gy·(y/b): y, which is 0 where a is, makes 1/b small where that would overflow
			d[1] = v.neg(v.mul(v.gy, v.div(v.y, v.in[1])))
		}
		return d
	},
	kernels.Pow:     powRule,
	kernels.Maximum: chosenRule(func(v *vjp, one, other node) node { return v.binary(kernels.Less, one, other) }),
	kernels.Minimum: chosenRule(func(v *vjp, one, other node) node { return v.binary(kernels.Less, other, one) }),
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
		return v.ApplyAll(kernels.AttentionGrad{Causal: i.Causal}, v.in[0], v.in[1], v.in[2], v.y, v.beside(v.y, 1), v.gy)
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
