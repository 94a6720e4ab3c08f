package autodiff

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/cache"
	"github.com/weft-project/weft/kernels"
)

// A primitive is a function of one instruction. Those without parameters are ready made, the others
// are found by their parameters.

// single is the function of one instruction.
func single(i kernels.Instr) *Func {
	return &Func{name: i.String(), arity: -1, build: func(g *Graph, in []*gorgonia.Node) []*gorgonia.Node {
		return []*gorgonia.Node{g.Apply(i, in...)}
	}}
}

// functions makes the function of each instruction of a family.
func functions[F ~uint8](instr func(F) kernels.Instr) (all [64]*Func) {
	for fn := range all {
		all[fn] = single(instr(F(fn)))
	}
	return all
}

var (
	unaries  = functions(func(fn kernels.UnaryFn) kernels.Instr { return kernels.Unary{Fn: fn} })
	binaries = functions(func(fn kernels.BinaryFn) kernels.Instr { return kernels.Binary{Fn: fn} })
	products = [4]*Func{single(kernels.MatMul{}), single(kernels.MatMul{TransA: true}), single(kernels.MatMul{TransB: true}), single(kernels.MatMul{TransA: true, TransB: true})}
	gathers  = single(kernels.Gather{})
	entropy  = single(kernels.CrossEntropy{})
	linear   = Define("linear", (*Graph).Linear)
	attend   = Define("attention", func(g *Graph, q, k, v *gorgonia.Node) *gorgonia.Node { return g.Attention(q, k, v, false) })
	attended = Define("causal attention", func(g *Graph, q, k, v *gorgonia.Node) *gorgonia.Node { return g.Attention(q, k, v, true) })
)

func unary(fn kernels.UnaryFn, x *Tensor) *Tensor      { return unaries[fn].Call(x) }
func binary(fn kernels.BinaryFn, a, b *Tensor) *Tensor { return binaries[fn].Call(a, b) }

// instructions keeps the functions of what was given to [Run]. It is a cache: what it holds changes
// no result.
var instructions struct {
	sync.Mutex
	kept cache.Bounded[instruction]
}

type instruction struct {
	kind reflect.Type
	*Func
}

// maxPrimitives bounds the caches; parameters such as slice bounds may differ at every call.
const maxPrimitives = 1024

// Run applies one instruction to tensors and records it on the tape.
func Run(i kernels.Instr, in ...*Tensor) *Tensor {
	if i == nil {
		return failed(opError("Run", fmt.Errorf("%w: the instruction is nil", ErrFunction)))
	}
	kind, text := reflect.TypeOf(i), i.String()
	h := maphash.String(seed, text)
	instructions.Lock()
	f, ok := instructions.kept.Find(h)
	if !ok || f.kind != kind || f.name != text {
		f = instruction{kind, single(i)}
		instructions.kept.Put(h, f, maxPrimitives)
	}
	instructions.Unlock()
	return f.Call(in...)
}

var seed = maphash.MakeSeed()

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

// ReLU is max(x, 0), and NaN where x is, where its gradient passes as PyTorch's does.
func ReLU(x *Tensor) *Tensor { return unary(kernels.Relu, x) }

// GELU is x·Φ(x), exact. Of −∞ it is 0, and so is its gradient, which
// of ∞ is 1: the limits, where PyTorch's are NaN.
func GELU(x *Tensor) *Tensor { return unary(kernels.Gelu, x) }

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

// MatMul is the matrix product over the last two axes; the axes before them are a batch and
// broadcast.
func MatMul(a, b *Tensor) *Tensor { return products[0].Call(a, b) }

// MatMulT is MatMul with either operand's last two axes swapped first.
func MatMulT(a, b *Tensor, transA, transB bool) *Tensor {
	which := 0
	if transA {
		which = 1
	}
	if transB {
		which += 2
	}
	return products[which].Call(a, b)
}

// Embedding picks rows of table (n, d…) by int32 or int64 ids of any shape.
func Embedding(table, ids *Tensor) *Tensor { return embed("Embedding", table, ids) }

// embed is Gather under the name that the user called.
func embed(op string, table, ids *Tensor) *Tensor {
	y := gathers.Call(table, ids)
	theirs := func(t *Tensor) bool { return t != nil && t.err != nil }
	if e, ok := y.err.(*Error); ok && !theirs(table) && !theirs(ids) { //nolint:errorlint // it was made here
		e.Op = op
	}
	return y
}

// CrossEntropy is the mean over rows of −log softmax(logits)[label]: logits (n, classes), labels
// (n) int32 or int64.
func CrossEntropy(logits, labels *Tensor) *Tensor { return entropy.Call(logits, labels) }

// Linear is x·w + b with w (in, out).
func Linear(x, w, b *Tensor) *Tensor { return linear.Call(x, w, b) }

// Attention is softmax(q·kᵀ/√d)·v for each head: see [Graph.Attention].
func Attention(q, k, v *Tensor, causal bool) *Tensor {
	if causal {
		return attended.Call(q, k, v)
	}
	return attend.Call(q, k, v)
}
