package autodiff

import (
	"fmt"
	"reflect"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// primitives keeps the function of each instruction that was used eagerly. It is a cache: what it holds changes no result.
var primitives struct {
	sync.RWMutex
	of map[primitiveKey]*Func
}

type primitiveKey struct {
	kind reflect.Type
	text string
}

// maxPrimitives bounds the cache; parameters such as slice bounds may differ at every call.
const maxPrimitives = 4096

// primitive is the function of one instruction.
func primitive(i kernels.Instr) *Func {
	key := primitiveKey{reflect.TypeOf(i), i.String()}
	primitives.RLock()
	f := primitives.of[key]
	primitives.RUnlock()
	if f != nil {
		return f
	}
	f = &Func{name: key.text, arity: -1, build: func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		return []*gorgonia.Node{g.Apply(i, in...)}
	}}
	primitives.Lock()
	defer primitives.Unlock()
	if have := primitives.of[key]; have != nil {
		return have
	}
	if primitives.of == nil || len(primitives.of) >= maxPrimitives {
		primitives.of = map[primitiveKey]*Func{}
	}
	primitives.of[key] = f
	return f
}

// Run applies one instruction to tensors and records it on the tape.
func Run(i kernels.Instr, in ...*Tensor) *Tensor {
	if i == nil {
		return failed(opError("Run", fmt.Errorf("%w: the instruction is nil", ErrFunction)))
	}
	return primitive(i).Call(in...)
}

func unary(fn kernels.UnaryFn, x *Tensor) *Tensor      { return Run(kernels.Unary{Fn: fn}, x) }
func binary(fn kernels.BinaryFn, a, b *Tensor) *Tensor { return Run(kernels.Binary{Fn: fn}, a, b) }

func rankOf(x *Tensor) int {
	if x == nil {
		return 0
	}
	return len(x.typ.Shape)
}

// Add is a + b. Shapes broadcast as in NumPy, here and below.
func Add(a, b *Tensor) *Tensor { return binary(kernels.Add, a, b) }

// Sub is a − b.
func Sub(a, b *Tensor) *Tensor { return binary(kernels.Sub, a, b) }

// Mul is the elementwise product a·b.
func Mul(a, b *Tensor) *Tensor { return binary(kernels.Mul, a, b) }

// Div is the elementwise quotient a/b.
func Div(a, b *Tensor) *Tensor { return binary(kernels.Div, a, b) }

// Neg is −x.
func Neg(x *Tensor) *Tensor { return unary(kernels.Neg, x) }

// Exp is e to the x.
func Exp(x *Tensor) *Tensor { return unary(kernels.Exp, x) }

// Log is the natural logarithm.
func Log(x *Tensor) *Tensor { return unary(kernels.Log, x) }

// Sqrt is the square root.
func Sqrt(x *Tensor) *Tensor { return unary(kernels.Sqrt, x) }

// Tanh is the hyperbolic tangent.
func Tanh(x *Tensor) *Tensor { return unary(kernels.Tanh, x) }

// Sigmoid is 1/(1+e^−x).
func Sigmoid(x *Tensor) *Tensor { return unary(kernels.Sigmoid, x) }

// ReLU is max(x, 0).
func ReLU(x *Tensor) *Tensor { return unary(kernels.Relu, x) }

// GELU is x·Φ(x), exact.
func GELU(x *Tensor) *Tensor { return unary(kernels.Gelu, x) }

// Scale is c·x.
func Scale(x *Tensor, c float64) *Tensor { return Run(kernels.Unary{Fn: kernels.Scale, C: c}, x) }

// Shift is x + c.
func Shift(x *Tensor, c float64) *Tensor { return Run(kernels.Unary{Fn: kernels.Shift, C: c}, x) }

// MatMul is the matrix product over the last two axes; the axes before them are a batch and broadcast.
func MatMul(a, b *Tensor) *Tensor { return Run(kernels.MatMul{}, a, b) }

// MatMulT is MatMul with either operand's last two axes swapped first.
func MatMulT(a, b *Tensor, transA, transB bool) *Tensor {
	return Run(kernels.MatMul{TransA: transA, TransB: transB}, a, b)
}

// Sum adds over axes (negative ones count from the last) and drops them; over all where none are given.
func Sum(x *Tensor, axes ...int) *Tensor { return reduced(kernels.Sum, x, axes) }

// Mean averages over axes and drops them.
func Mean(x *Tensor, axes ...int) *Tensor { return reduced(kernels.Mean, x, axes) }

// Max is the largest over axes, which it drops; where several are largest the gradient is shared.
func Max(x *Tensor, axes ...int) *Tensor { return reduced(kernels.Max, x, axes) }

func reduced(fn kernels.ReduceFn, x *Tensor, axes []int) *Tensor {
	return Run(kernels.Reduce{Fn: fn, Axes: normalised(axes, rankOf(x))}, x)
}

// Reshape keeps the elements in order under another shape; one extent may be −1. It copies nothing.
func Reshape(x *Tensor, shape ...int) *Tensor {
	var from device.Shape
	if x != nil {
		from = x.typ.Shape
	}
	return Run(kernels.Reshape{Shape: inferredShape(from, shape)}, x)
}

// BroadcastTo repeats x along new axes and along axes of extent 1.
func BroadcastTo(x *Tensor, shape ...int) *Tensor {
	return Run(kernels.BroadcastTo{Shape: device.Shape(shape).Clone()}, x)
}

// Transpose permutes axes; without perm it reverses them.
func Transpose(x *Tensor, perm ...int) *Tensor {
	return Run(kernels.Transpose{Perm: permutation(perm, rankOf(x))}, x)
}

// Slice keeps start ≤ index < stop of one axis.
func Slice(x *Tensor, axis, start, stop int) *Tensor {
	return Run(kernels.Slice{Axis: wrap(axis, rankOf(x)), Start: start, Stop: stop}, x)
}

// Concat joins tensors along one axis.
func Concat(axis int, xs ...*Tensor) *Tensor {
	if len(xs) > 0 {
		axis = wrap(axis, rankOf(xs[0]))
	}
	return Run(kernels.Concat{Axis: axis}, xs...)
}

// Embedding picks rows of table (n, d…) by int32 or int64 ids of any shape.
func Embedding(table, ids *Tensor) *Tensor { return embed("Embedding", table, ids) }

// embed is Gather under the name that the user called.
func embed(op string, table, ids *Tensor) *Tensor {
	y := Run(kernels.Gather{}, table, ids)
	if e, ok := y.err.(*Error); ok && table.Err() == nil && ids.Err() == nil { //nolint:errorlint // it was made here
		e.Op = op
	}
	return y
}

// Softmax normalises e^x along one axis.
func Softmax(x *Tensor, axis int) *Tensor {
	return Run(kernels.Softmax{Axis: wrap(axis, rankOf(x))}, x)
}

// LogSoftmax is log(Softmax(x)), computed without overflow.
func LogSoftmax(x *Tensor, axis int) *Tensor {
	return Run(kernels.Softmax{Axis: wrap(axis, rankOf(x)), Log: true}, x)
}

// CrossEntropy is the mean over rows of −log softmax(logits)[label]: logits (n, classes), labels (n) int32 or int64.
func CrossEntropy(logits, labels *Tensor) *Tensor { return Run(kernels.CrossEntropy{}, logits, labels) }

// LayerNorm normalises the last axis to mean 0 and variance 1, then scales by gamma and shifts by beta.
func LayerNorm(x, gamma, beta *Tensor, eps float64) *Tensor {
	return Add(Mul(Run(kernels.Normalize{Eps: eps}, x), gamma), beta)
}

// Linear is x·w + b with w (in, out).
func Linear(x, w, b *Tensor) *Tensor { return linear.Call(x, w, b) }

var linear = Define("linear", (*Graph).Linear)

// Cast converts the dtype.
func Cast(x *Tensor, to device.Dtype) *Tensor { return Run(kernels.Cast{To: to}, x) }
