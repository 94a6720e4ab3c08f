package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
)

func unaryBody[T device.Float](i Unary) body {
	loop := unaryLoop[T](i)
	return func(outs, ins [][]byte) error {
		loop(device.As[T](outs[0]), device.As[T](ins[0]))
		return nil
	}
}

// unaryLoop is the loop of a function over x, written to o of the same length, which may be x.
func unaryLoop[T device.Float](i Unary) func(o, x []T) {
	c := T(i.C)
	switch i.Fn {
	case Neg:
		return func(o, x []T) {
			for k, v := range x {
				o[k] = -v
			}
		}
	case Scale:
		return func(o, x []T) {
			for k, v := range x {
				o[k] = v * c
			}
		}
	case Shift:
		return func(o, x []T) {
			for k, v := range x {
				o[k] = v + c
			}
		}
	case Relu:
		return func(o, x []T) {
			for k, v := range x {
				if v < 0 { // a NaN passes
					v = 0
				}
				o[k] = v
			}
		}
	}
	f := unaryMath[i.Fn]
	return func(o, x []T) {
		for k, v := range x {
			o[k] = T(f(float64(v)))
		}
	}
}

// unaryMath holds the functions that are computed in float64.
var unaryMath = [numUnary]func(float64) float64{
	Exp: math.Exp, Log: math.Log, Sqrt: math.Sqrt, Tanh: math.Tanh, Sigmoid: sigmoid, Gelu: gelu,
	Abs: math.Abs, Ceil: math.Ceil, Floor: math.Floor, Sin: math.Sin, Cos: math.Cos,
	Log1p: math.Log1p, Expm1: math.Expm1, Softplus: softplus,
}

// softplus never computes the exponential of a positive number.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// sigmoid never computes the exponential of a large positive number.
func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

// normalCDF is Φ; erfc keeps its small values exact.
func normalCDF(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

func gelu(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x * normalCDF(x)
}

func geluGrad(x float64) float64 {
	const invSqrt2Pi = 0.3989422804014326779399460599343818684758586311649
	if math.IsInf(x, 0) {
		return normalCDF(x)
	}
	return normalCDF(x) + x*invSqrt2Pi*math.Exp(-x*x/2)
}

// binaryLoop is the loop of a function over a and b, written to o; all have one length and o may be a or b.
func binaryLoop[T device.Float](fn BinaryFn) func(o, a, b []T) {
	switch fn {
	case Add:
		return func(o, a, b []T) {
			a, b = a[:len(o)], b[:len(o)]
			for k := range o {
				o[k] = a[k] + b[k]
			}
		}
	case Sub:
		return func(o, a, b []T) {
			a, b = a[:len(o)], b[:len(o)]
			for k := range o {
				o[k] = a[k] - b[k]
			}
		}
	case Mul:
		return func(o, a, b []T) {
			a, b = a[:len(o)], b[:len(o)]
			for k := range o {
				o[k] = a[k] * b[k]
			}
		}
	case Div:
		return func(o, a, b []T) {
			a, b = a[:len(o)], b[:len(o)]
			for k := range o {
				o[k] = a[k] / b[k]
			}
		}
	}
	if fn >= Pow {
		return compareLoop[T](fn)
	}
	return gradLoop[T](fn)
}

// gradLoop is binaryLoop for the gradients, of (saved, gy).
func gradLoop[T device.Float](fn BinaryFn) func(o, a, b []T) {
	switch fn {
	case TanhGrad:
		return func(o, y, gy []T) {
			for k := range o {
				o[k] = gy[k] * (1 - y[k]*y[k])
			}
		}
	case SigmoidGrad:
		return func(o, y, gy []T) {
			for k := range o {
				o[k] = gy[k] * y[k] * (1 - y[k])
			}
		}
	case ReluGrad:
		return func(o, x, gy []T) {
			for k := range o {
				g := gy[k]
				if !(x[k] > 0) {
					g = 0
				}
				o[k] = g
			}
		}
	}
	return func(o, x, gy []T) {
		for k := range o {
			o[k] = T(float64(gy[k]) * geluGrad(float64(x[k])))
		}
	}
}
