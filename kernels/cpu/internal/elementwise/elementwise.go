package elementwise

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// small is how many elements are not worth tiles and parts.
const small = 16 << 10

// Body computes an instruction of this package; it is nil for others.
func Body[T vec.Float](i kernels.Instr, in, out []kernels.Type) parallel.Body {
	switch i := i.(type) {
	case kernels.Unary:
		return unary[T](i, in)
	case kernels.Binary:
		return binary[T](i, in, out[0])
	case kernels.Map:
		return Map[T](i, in, nil)
	case kernels.Reduce:
		return reduce[T](i, in[0])
	case kernels.MaxGrad:
		return maxGrad[T](i, in[0])
	}
	return nil
}

// unary applies a function to every element.
func unary[T vec.Float](i kernels.Unary, in []kernels.Type) parallel.Body {
	if in[0].Shape.Elems() > small {
		return Map[T](kernels.Map{Shape: in[0].Shape, Steps: []kernels.Step{{Op: i}}, Outs: []kernels.Out{{Reg: 1}}}, in, nil)
	}
	s := newStep[T](vec.Best[T](), kernels.Step{Op: i}, 0, 0)
	return func(outs, ins [][]byte) error {
		s.apply(device.As[T](outs[0]), device.As[T](ins[0]), nil)
		return nil
	}
}

// binary applies a function to pairs of elements, of operands that broadcast.
func binary[T vec.Float](i kernels.Binary, in []kernels.Type, out kernels.Type) parallel.Body {
	if in[0].Shape.Equal(in[1].Shape) && out.Shape.Elems() <= small {
		loop := binaryLoop(vec.Best[T](), i.Fn)
		return func(outs, ins [][]byte) error {
			loop(device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]))
			return nil
		}
	}
	return Map[T](kernels.Map{Shape: out.Shape, Steps: []kernels.Step{{Op: i, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}, in, nil)
}

// unaryLoop is the loop of a function over x, written to o of the same length, which may be x.
func unaryLoop[T vec.Float](l *vec.Loops[T], fn kernels.UnaryFn) func(o, x []T) {
	switch fn {
	case kernels.Neg:
		return l.Neg
	case kernels.Exp:
		return l.Exp
	case kernels.Log:
		return l.Log
	case kernels.Sqrt:
		return l.Sqrt
	case kernels.Tanh:
		return l.Tanh
	case kernels.Sigmoid:
		return l.Sigmoid
	case kernels.Relu:
		return l.Relu
	case kernels.Gelu:
		return l.Gelu
	}
	f := fn.Scalar()
	return func(o, x []T) {
		vec.Stretches(len(o), func(from, to int) {
			for k := from; k < to; k++ {
				o[k] = T(f(float64(x[k])))
			}
		})
	}
}

// binaryLoop is the loop of a function over a and b, written to o; all have one length and o may be
// a or b.
func binaryLoop[T vec.Float](l *vec.Loops[T], fn kernels.BinaryFn) func(o, a, b []T) {
	switch fn {
	case kernels.Add:
		return l.Add
	case kernels.Sub:
		return l.Sub
	case kernels.Mul:
		return l.Mul
	case kernels.Div:
		return l.Div
	case kernels.TanhGrad:
		return l.TanhGrad
	case kernels.SigmoidGrad:
		return l.SigmoidGrad
	case kernels.ReluGrad:
		return l.ReluGrad
	case kernels.GeluGrad:
		return l.GeluGrad
	case kernels.Maximum:
		return l.Maximum
	case kernels.Minimum:
		return l.Minimum
	case kernels.Less:
		return l.Less
	case kernels.LessEqual:
		return l.LessEqual
	case kernels.Equal:
		return l.Equal
	}
	return func(o, a, b []T) { // Pow
		vec.Stretches(len(o), func(from, to int) {
			for k := from; k < to; k++ {
				o[k] = T(vec.Pow(float64(a[k]), float64(b[k])))
			}
		})
	}
}
