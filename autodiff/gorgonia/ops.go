package gorgonia

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// taker finds out what an op computes. Gorgonia's ops are of types that it does not export: they
// are known by the type's name, and their parameters by reflection.
type taker func(o *opNode) (builder, error)

// takerOf is the table of the ops that can be imported; nil for the others.
func takerOf(kind string) taker {
	switch kind {
	case "elemUnaryOp":
		return takeUnary
	case "elemBinOp":
		return takeBinary
	case "minBetween":
		return always(func(g *autodiff.Graph, in []node) node { return g.Minimum(in[0], in[1]) })
	case "maxBetween":
		return always(func(g *autodiff.Graph, in []node) node { return g.Maximum(in[0], in[1]) })
	case "linAlgBinOp":
		return takeProduct
	case "tensordotOp":
		return takeTensordot
	case "sumOp":
		return func(o *opNode) (builder, error) { return reduction(kernels.Sum, o.ints("along")), nil }
	case "maxOp":
		return func(o *opNode) (builder, error) { return reduction(kernels.Max, o.ints("along")), nil }
	case "reshapeOp":
		return always(func(_ *autodiff.Graph, in []node) node { return in[0] }) // the shape is the node's
	case "transposeOp":
		return func(o *opNode) (builder, error) {
			perm := o.ints("pattern")
			return func(g *autodiff.Graph, in []node) node { return g.Transpose(in[0], perm...) }, nil
		}
	case "concatOp":
		return func(o *opNode) (builder, error) {
			axis := o.int("axis")
			return func(g *autodiff.Graph, in []node) node { return g.Concat(axis, in...) }, nil
		}
	case "sliceOp":
		return takeSlice
	case "atOp":
		return takeAt
	case "repeatOp":
		return takeRepeat
	case "sizeOp":
		return takeSize
	case "dtConvOp":
		return func(o *opNode) (builder, error) {
			return func(g *autodiff.Graph, in []node) node { return g.Cast(in[0], o.out.Dtype) }, nil
		}
	case "byIndicesOp":
		return takeByIndices
	case "softmaxOp":
		return takeSoftmax
	}
	return imageTaker(kind)
}

func always(b builder) taker { return func(*opNode) (builder, error) { return b, nil } }

// kindOf is the name of an op's type, if it is one of Gorgonia's.
func kindOf(op gorgonia.Op) string {
	if op == nil {
		return ""
	}
	t := reflect.TypeOf(op)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() != reflect.TypeFor[gorgonia.Node]().PkgPath() {
		return ""
	}
	return t.Name()
}

// chooseBuilder finds the builder of an op.
func (o *opNode) chooseBuilder() (err error) {
	if own, ok := o.op.(*autodiff.Op); ok {
		o.build = func(g *autodiff.Graph, in []node) node { return g.Apply(own.Instr, in...) }
		return nil
	}
	if want := o.op.Arity(); want >= 0 && want != len(o.in) {
		return fmt.Errorf("%w: it takes %d operands and has %d", kernels.ErrOperands, want, len(o.in))
	}
	kind := kindOf(o.op)
	t := takerOf(kind)
	if t == nil {
		return refusal(kind)
	}
	o.build, err = t(o)
	if o.err != nil {
		return o.err
	}
	return err
}

// refusal says what to do about an op that is not imported.
func refusal(kind string) error {
	switch {
	case kind == "":
		return errors.New("the op is neither Gorgonia's nor Weft's; make its result an input")
	case strings.HasSuffix(strings.ToLower(kind), "diffop") || kind == "col2imOp" || kind == "sliceIncrOp":
		return errors.New("the op is part of a gradient that Gorgonia built; take what it is the gradient of, and call autodiff.Backward")
	}
	return errors.New("there is no such op in Weft; build this part of other ops, or make its result an input")
}

// field reads a field of the struct behind the op. Where there is none, it is zero, and o cannot be
// taken.
func field[T any](o *opNode, name string, read func(reflect.Value) T) (v T) {
	f := reflect.Indirect(reflect.ValueOf(o.op)).FieldByName(name)
	if !f.IsValid() {
		o.err = fmt.Errorf("%T has no field %s; is this another version of Gorgonia?", o.op, name)
		return v
	}
	return read(f)
}

func (o *opNode) bool(name string) bool     { return field(o, name, reflect.Value.Bool) }
func (o *opNode) float(name string) float64 { return field(o, name, reflect.Value.Float) }
func (o *opNode) int(name string) int       { return int(field(o, name, reflect.Value.Int)) }

func (o *opNode) ints(name string) []int {
	return field(o, name, func(f reflect.Value) []int {
		out := make([]int, f.Len())
		for k := range out {
			out[k] = int(f.Index(k).Int())
		}
		return out
	})
}

func takeUnary(o *opNode) (builder, error) {
	name := o.op.String()
	if f := unaryBuilders[name]; f != nil {
		return func(g *autodiff.Graph, in []node) node { return f(g, in[0]) }, nil
	}
	for fn := range kernels.UnaryFn(kernels.UnaryFns) {
		if strings.EqualFold(name, fn.String()) {
			return func(g *autodiff.Graph, in []node) node { return g.Apply(kernels.Unary{Fn: fn}, in[0]) }, nil
		}
	}
	return nil, refusal("elemUnaryOp")
}

// unaryBuilders is by the op's String: of those that are not Weft's under the same name.
var unaryBuilders = map[string]func(g *autodiff.Graph, x node) node{
	"ln": (*autodiff.Graph).Log,
	"sign": func(g *autodiff.Graph, x node) node { // 1 at 0
		return g.Shift(g.Scale(g.LessEqual(constant(g, x, 0), x), 2), -1)
	},
	"log2":    func(g *autodiff.Graph, x node) node { return g.Scale(g.Log(x), 1/math.Ln2) },
	"square":  func(g *autodiff.Graph, x node) node { return g.Mul(x, x) },
	"cube":    func(g *autodiff.Graph, x node) node { return g.Mul(g.Mul(x, x), x) },
	"inv":     func(g *autodiff.Graph, x node) node { return g.Div(constant(g, x, 1), x) },
	"invSqrt": func(g *autodiff.Graph, x node) node { return g.Div(constant(g, x, 1), g.Sqrt(x)) },
}

// takeBinary: both operands have the result's shape, but for axes of 1 that Gorgonia ignores, or
// are one number.
func takeBinary(o *opNode) (builder, error) {
	sign, _, _ := strings.Cut(o.op.String(), " ")
	f := binaryBuilders[sign]
	if f == nil {
		return nil, refusal("elemBinOp")
	}
	shapes := make([]device.Shape, 2)
	for k, t := range o.in {
		switch n := t.Shape.Elems(); {
		case n == o.out.Shape.Elems():
			shapes[k] = o.out.Shape
		case n == 1:
			shapes[k] = device.Shape{}
		default:
			return nil, fmt.Errorf("%w: %v and %v give %v", kernels.ErrOperands, o.in[0], o.in[1], o.out)
		}
	}
	return func(g *autodiff.Graph, in []node) node {
		return f(g, reshapeTo(g, in[0], shapes[0]), reshapeTo(g, in[1], shapes[1]))
	}, nil
}

var binaryBuilders = map[string]func(g *autodiff.Graph, a, b node) node{
	"+": (*autodiff.Graph).Add, "-": (*autodiff.Graph).Sub, "⊙": (*autodiff.Graph).Mul, "÷": (*autodiff.Graph).Div, "^": (*autodiff.Graph).Pow,
	"<": (*autodiff.Graph).Less, "<=": (*autodiff.Graph).LessEqual, "==": (*autodiff.Graph).Equal,
	">":  func(g *autodiff.Graph, a, b node) node { return g.Less(b, a) },
	">=": func(g *autodiff.Graph, a, b node) node { return g.LessEqual(b, a) },
	"!=": func(g *autodiff.Graph, a, b node) node { return g.Sub(constant(g, a, 1), g.Equal(a, b)) },
}

// takeProduct: the String of an op is like "Aᵀ × b".
func takeProduct(o *opNode) (builder, error) {
	text := o.op.String()
	transA, transB := strings.Contains(text, "Aᵀ"), strings.Contains(text, "Bᵀ")
	sign := strings.Fields(text)[1]
	vector := func(g *autodiff.Graph, x node) node { return reshapeTo(g, x, device.Shape{g.Type(x).Shape.Elems(), 1}) }
	switch {
	case sign == "×" && strings.HasSuffix(text, "b"):
		return func(g *autodiff.Graph, in []node) node { return g.MatMulT(in[0], vector(g, in[1]), transA, false) }, nil
	case sign == "×", sign == "×××":
		return func(g *autodiff.Graph, in []node) node { return g.MatMulT(in[0], in[1], transA, transB) }, nil
	case sign == "⋅":
		return func(g *autodiff.Graph, in []node) node {
			return g.MatMulT(vector(g, in[0]), vector(g, in[1]), true, false)
		}, nil
	case sign == "⊗":
		return func(g *autodiff.Graph, in []node) node { return g.Mul(vector(g, in[0]), g.Transpose(vector(g, in[1]))) }, nil
	}
	return nil, refusal("linAlgBinOp")
}

// takeTensordot brings the contracted axes together and multiplies matrices.
func takeTensordot(o *opNode) (builder, error) {
	aAxes, bAxes := o.ints("aAxes"), o.ints("bAxes")
	matrix := func(g *autodiff.Graph, x node, perm []int, rows int) node {
		return reshapeTo(g, g.Transpose(x, perm...), device.Shape{rows, g.Type(x).Shape.Elems() / rows})
	}
	free := func(t kernels.Type, axes []int) (rest []int, elems int) {
		elems = 1
		for k, n := range t.Shape {
			if !slices.Contains(axes, k) {
				rest, elems = append(rest, k), elems*n
			}
		}
		return rest, elems
	}
	aRest, m := free(o.in[0], aAxes)
	bRest, n := free(o.in[1], bAxes)
	if o.in[0].Shape.Elems()*o.in[1].Shape.Elems() == 0 {
		return nil, fmt.Errorf("%w: an operand is empty", kernels.ErrOperands)
	}
	return func(g *autodiff.Graph, in []node) node {
		return g.MatMulT(matrix(g, in[0], slices.Concat(aRest, aAxes), m), matrix(g, in[1], slices.Concat(bRest, bAxes), n), false, true)
	}, nil
}

func reduction(fn kernels.ReduceFn, axes []int) builder {
	return func(g *autodiff.Graph, in []node) node { return g.Apply(kernels.Reduce{Fn: fn, Axes: axes}, in[0]) }
}

// takeSlice: a nil slice is everything, and so is an empty one.
func takeSlice(o *opNode) (builder, error) {
	along := o.int("along")
	of, ok := o.op.(interface{ IsSlice() tensor.Slice })
	if !ok || along >= len(o.in[0].Shape) {
		return nil, fmt.Errorf("%w: no axis %d in %v", kernels.ErrOperands, along, o.in[0])
	}
	s := of.IsSlice()
	if s == nil || s.End() <= s.Start() {
		return func(_ *autodiff.Graph, in []node) node { return in[0] }, nil
	}
	start, stop, step := s.Start(), s.End(), max(s.Step(), 1)
	return func(g *autodiff.Graph, in []node) node {
		x := g.Slice(in[0], along, start, stop)
		if step == 1 || g.Err() != nil {
			return x
		}
		// Every step-th: rows of step elements, of which the first is kept.
		n := (stop - start + step - 1) / step
		x = g.Apply(kernels.Pad{Axis: along, After: n*step - (stop - start)}, x)
		shape := g.Type(x).Shape
		x = reshapeTo(g, x, slices.Concat(shape[:along], device.Shape{n, step}, shape[along+1:]))
		return reshapeTo(g, g.Slice(x, along+1, 0, 1), slices.Concat(shape[:along], device.Shape{n}, shape[along+1:]))
	}, nil
}

func takeAt(o *opNode) (builder, error) {
	at := o.ints("coordinates")
	return func(g *autodiff.Graph, in []node) node {
		x := in[0]
		for axis, k := range at {
			x = g.Slice(x, axis, k, k+1)
		}
		return x
	}, nil
}

// takeRepeat repeats each element along an axis, as often as the shapes say; axes of 1 are added at
// the end where there are too few.
func takeRepeat(o *opNode) (builder, error) {
	along := o.int("along")
	from := o.in[0].Shape.Clone()
	for len(from) <= along {
		from = append(from, 1)
	}
	if len(o.out.Shape) <= along || from[along] == 0 || o.out.Shape[along]%from[along] != 0 {
		return nil, fmt.Errorf("%w: %v repeated along axis %d to %v", kernels.ErrOperands, o.in[0], along, o.out)
	}
	one := slices.Concat(from[:along+1], device.Shape{1}, from[along+1:])
	many := slices.Clone(one)
	many[along+1] = o.out.Shape[along] / from[along]
	return func(g *autodiff.Graph, in []node) node {
		return g.BroadcastTo(reshapeTo(g, in[0], one), many...)
	}, nil
}

// takeSize is the number of elements along an axis, as a number of the operand's dtype.
func takeSize(o *opNode) (builder, error) {
	n, axis := 1, o.int("axis")
	if s := o.in[0].Shape; len(s) > 0 {
		if axis < 0 || axis >= len(s) {
			return nil, fmt.Errorf("%w: no axis %d in %v", kernels.ErrOperands, axis, o.in[0])
		}
		n = s[axis]
	}
	return func(g *autodiff.Graph, _ []node) node {
		return g.Apply(kernels.Fill{Type: o.out, C: float64(n)})
	}, nil
}

// takeByIndices brings the axis to the front, picks rows, and brings it back.
func takeByIndices(o *opNode) (builder, error) {
	axis := o.int("axis")
	if axis >= len(o.in[0].Shape) {
		return nil, fmt.Errorf("%w: no axis %d in %v", kernels.ErrOperands, axis, o.in[0])
	}
	perm := make([]int, len(o.in[0].Shape))
	for k := range perm {
		perm[k] = k
	}
	perm = slices.Concat([]int{axis}, slices.Delete(slices.Clone(perm), axis, axis+1))
	return func(g *autodiff.Graph, in []node) node {
		ids := reshapeTo(g, in[1], device.Shape{o.in[1].Shape.Elems()})
		if axis == 0 {
			return g.Embedding(in[0], ids)
		}
		return g.Transpose(g.Embedding(g.Transpose(in[0], perm...), ids), inverse(perm)...)
	}, nil
}

// takeSoftmax: without an axis it is the last one, or that of a vector.
func takeSoftmax(o *opNode) (builder, error) {
	axis, log := o.int("axis"), o.bool("isLog")
	if axis == -1 {
		s := tensor.Shape(o.in[0].Shape)
		if axis = len(s) - 1; s.IsColVec() {
			axis = 0
		}
	}
	return func(g *autodiff.Graph, in []node) node { return g.Apply(kernels.Softmax{Axis: axis, Log: log}, in[0]) }, nil
}

// inverse undoes a permutation.
func inverse(perm []int) []int {
	inv := make([]int, len(perm))
	for i, p := range perm {
		inv[p] = i
	}
	return inv
}
