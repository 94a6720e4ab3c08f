package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/vec"
)

// small is how many elements are not worth tiles and parts.
const small = 16 << 10

func unaryBody[T vec.Float](i Unary, in []Type) body {
	if in[0].Shape.Elems() > small {
		return mapBody[T](Map{Shape: in[0].Shape, Steps: []Step{{Op: i}}, Outs: []Out{{Reg: 1}}}, in, nil)
	}
	s := newStep[T](vec.Best[T](), Step{Op: i}, 0, 0)
	return func(outs, ins [][]byte) error {
		s.apply(device.As[T](outs[0]), device.As[T](ins[0]), nil)
		return nil
	}
}

func binaryBody[T vec.Float](i Binary, in []Type, out Type) body {
	if in[0].Shape.Equal(in[1].Shape) && out.Shape.Elems() <= small {
		loop := binaryLoop(vec.Best[T](), i.Fn)
		return func(outs, ins [][]byte) error {
			loop(device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]))
			return nil
		}
	}
	return mapBody[T](Map{Shape: out.Shape, Steps: []Step{{Op: i, Args: [2]int{0, 1}}}, Outs: []Out{{Reg: 2}}}, in, nil)
}

// unaryLoop is the loop of a function over x, written to o of the same length, which may be x.
func unaryLoop[T vec.Float](l *vec.Loops[T], fn UnaryFn) func(o, x []T) {
	switch fn {
	case Neg:
		return l.Neg
	case Exp:
		return l.Exp
	case Log:
		return l.Log
	case Sqrt:
		return l.Sqrt
	case Tanh:
		return l.Tanh
	case Sigmoid:
		return l.Sigmoid
	case Relu:
		return l.Relu
	case Gelu:
		return l.Gelu
	}
	f := unaryMath[fn]
	return func(o, x []T) {
		for k := range o {
			o[k] = T(f(float64(x[k])))
		}
	}
}

// unaryMath holds the functions that have no loop of their own.
var unaryMath = [...]func(float64) float64{
	Abs: math.Abs, Ceil: math.Ceil, Floor: math.Floor, Sin: math.Sin, Cos: math.Cos,
	Log1p: math.Log1p, Expm1: math.Expm1, Softplus: softplus,
}

// softplus never computes the exponential of a positive number.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// binaryLoop is the loop of a function over a and b, written to o; all have one length and o may be a or b.
func binaryLoop[T vec.Float](l *vec.Loops[T], fn BinaryFn) func(o, a, b []T) {
	switch fn {
	case Add:
		return l.Add
	case Sub:
		return l.Sub
	case Mul:
		return l.Mul
	case Div:
		return l.Div
	case TanhGrad:
		return l.TanhGrad
	case SigmoidGrad:
		return l.SigmoidGrad
	case ReluGrad:
		return l.ReluGrad
	case GeluGrad:
		return l.GeluGrad
	case Maximum:
		return l.Maximum
	case Minimum:
		return l.Minimum
	case Less:
		return l.Less
	case LessEqual:
		return l.LessEqual
	case Equal:
		return l.Equal
	}
	return func(o, a, b []T) { // Pow
		for k := range o {
			o[k] = T(vec.Pow(float64(a[k]), float64(b[k])))
		}
	}
}
