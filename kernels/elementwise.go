package kernels

import (
	"fmt"
	"math"

	"github.com/weft-project/weft/device"
)

// UnaryFn is a function of one element.
type UnaryFn uint8

// The unary functions. Scale and Shift use the instruction's constant.
const (
	Neg UnaryFn = iota
	Exp
	Log
	Sqrt
	Tanh
	Sigmoid
	Relu
	Gelu  // exact: x·Φ(x), by the error function
	Scale // x·C
	Shift // x+C
	Abs
	Ceil
	Floor
	Sin
	Cos
	Log1p    // log(1+x)
	Expm1    // eˣ-1
	Softplus // log(1+eˣ)
	Softsign // x/(1+|x|)
	numUnary
)

// UnaryFns is how many unary functions there are, from 0 on.
const UnaryFns = int(numUnary)

// function is what is known of an elementwise function. Weights are rough: 1 is a few instructions,
// and 8 is all that takes longer.
type function struct {
	name   string
	weight int                     // additions that a CPU does in the time: plans of threads go by it
	again  int                     // the same, where the compiler weighs computing anew against keeping
	of     func(x float64) float64 // of a unary function for which a CPU has no loop of its own
}

var unaries = [numUnary]function{
	Neg:      {"Neg", 1, 1, nil},
	Exp:      {"Exp", 8, 6, nil},
	Log:      {"Log", 8, 6, nil},
	Sqrt:     {"Sqrt", 1, 6, nil},
	Tanh:     {"Tanh", 8, 12, nil},
	Sigmoid:  {"Sigmoid", 8, 6, nil},
	Relu:     {"Relu", 1, 1, nil},
	Gelu:     {"Gelu", 8, 12, nil},
	Scale:    {"Scale", 1, 1, nil},
	Shift:    {"Shift", 1, 1, nil},
	Abs:      {"Abs", 1, 12, math.Abs},
	Ceil:     {"Ceil", 1, 12, math.Ceil},
	Floor:    {"Floor", 1, 12, math.Floor},
	Sin:      {"Sin", 8, 12, math.Sin},
	Cos:      {"Cos", 8, 12, math.Cos},
	Log1p:    {"Log1p", 8, 12, math.Log1p},
	Expm1:    {"Expm1", 8, 12, math.Expm1},
	Softplus: {"Softplus", 8, 12, softplus},
	Softsign: {"Softsign", 8, 12, softsign},
}

// softplus never computes the exponential of a positive number.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// softsign of an infinity is its limit.
func softsign(x float64) float64 {
	if math.IsInf(x, 0) {
		return math.Copysign(1, x)
	}
	return x / (1 + math.Abs(x))
}

// Weight is about how many additions a CPU does in the time that the function takes.
func (f UnaryFn) Weight() int { return unaries[f].weight }

// Scalar computes the function of one number. It is nil where a backend for CPUs must have a loop.
func (f UnaryFn) Scalar() func(x float64) float64 { return unaries[f].of }

func (f UnaryFn) String() string {
	if f < numUnary {
		return unaries[f].name
	}
	return fmt.Sprintf("UnaryFn(%d)", uint8(f))
}

// Unary applies Fn to each element: x → like x.
type Unary struct {
	Fn UnaryFn
	C  float64 // the constant of Scale and Shift; others ignore it
}

func (i Unary) String() string {
	if i.Fn == Scale || i.Fn == Shift {
		return fmt.Sprintf("%v(%v)", i.Fn, i.C)
	}
	return i.Fn.String()
}

// Infer takes one tensor of floats.
func (i Unary) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	if i.Fn >= numUnary {
		return nil, refuse(i, in, "there is no such function")
	}
	return []Type{in[0]}, nil
}

// Functions of float64 have no vectors.
func (i Unary) again(d device.Dtype) int {
	if w := unaries[i.Fn].again; d != device.Float64 || w == 1 {
		return w
	}
	return 4 * unaries[i.Fn].again
}

func (i Binary) again(device.Dtype) int { return binaries[i.Fn].again }

func (i Unary) flops(in, out []Type) int { return elems(out, 0) }

func (i Unary) readsNarrow(int) bool  { return true }
func (i Binary) readsNarrow(int) bool { return true }

func (i Unary) rounding() Rounding { return Rounding{Result: true, Operands: true} }

func (i Unary) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}

// BinaryFn is a function of two elements.
type BinaryFn uint8

// The binary functions. The gradients are functions of a saved value and of the gradient gy of the
// result y.
const (
	Add BinaryFn = iota
	Sub
	Mul
	Div
	TanhGrad    // (y, gy) → gy·(1-y²)
	SigmoidGrad // (y, gy) → gy·y·(1-y)
	ReluGrad    // (x, gy) → 0 where x ≤ 0, else gy: where x is NaN too
	GeluGrad    // (x, gy) → gy·(Φ(x) + x·φ(x))
	Pow         // a to the b
	Maximum     // NaN where either is
	Minimum     // NaN where either is
	Less        // 1 where a < b, else 0
	LessEqual   // 1 where a ≤ b, else 0
	Equal       // 1 where a = b, else 0
	numBinary
)

// BinaryFns is how many binary functions there are, from 0 on.
const BinaryFns = int(numBinary)

var binaries = [numBinary]function{
	Add:         {"Add", 1, 1, nil},
	Sub:         {"Sub", 1, 1, nil},
	Mul:         {"Mul", 1, 1, nil},
	Div:         {"Div", 1, 1, nil},
	TanhGrad:    {"TanhGrad", 1, 1, nil},
	SigmoidGrad: {"SigmoidGrad", 1, 1, nil},
	ReluGrad:    {"ReluGrad", 1, 1, nil},
	GeluGrad:    {"GeluGrad", 8, 1, nil},
	Pow:         {"Pow", 8, 1, nil},
	Maximum:     {"Maximum", 1, 1, nil},
	Minimum:     {"Minimum", 1, 1, nil},
	Less:        {"Less", 1, 1, nil},
	LessEqual:   {"LessEqual", 1, 1, nil},
	Equal:       {"Equal", 1, 1, nil},
}

// Weight is about how many additions a CPU does in the time that the function takes.
func (f BinaryFn) Weight() int { return binaries[f].weight }

func (f BinaryFn) String() string {
	if f < numBinary {
		return binaries[f].name
	}
	return fmt.Sprintf("BinaryFn(%d)", uint8(f))
}

// Binary applies Fn to pairs of elements, with numpy's broadcasting: (a, b) → their common shape.
type Binary struct{ Fn BinaryFn }

func (i Binary) String() string { return i.Fn.String() }

// Infer takes two tensors of one floating-point dtype whose shapes broadcast.
func (i Binary) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	if i.Fn >= numBinary {
		return nil, refuse(i, in, "there is no such function")
	}
	s, ok := broadcastShapes(in[0].Shape, in[1].Shape)
	if !ok {
		return nil, refuse(i, in, "the shapes do not broadcast")
	}
	return result(i, in, in[0].Dtype, s)
}

func (i Binary) flops(in, out []Type) int { return elems(out, 0) }

func (i Binary) rounding() Rounding {
	return Rounding{Result: true, Operands: true, Sums: i.Fn == Add || i.Fn == Sub}
}

func (i Binary) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}

// broadcastShapes is the common shape of two operands by numpy's rules.
func broadcastShapes(a, b device.Shape) (device.Shape, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	s := a.Clone()
	for k := range b {
		at := len(a) - len(b) + k
		switch {
		case a[at] == b[k] || b[k] == 1:
		case a[at] == 1:
			s[at] = b[k]
		default:
			return nil, false
		}
	}
	return s, true
}
