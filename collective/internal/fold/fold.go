package fold

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
)

// Fn makes one element of several. The numbers travel between workers.
type Fn uint8

// The functions. A NaN among the elements makes Min and Max NaN. Mean divides the sum, once.
const (
	Sum Fn = iota + 1
	Mean
	Prod
	Min
	Max
	And
	Or
	Xor
	Scaled // the sum of Factor·x
)

var fns = [...]string{"Sum", "Mean", "Prod", "Min", "Max", "And", "Or", "Xor", "Scaled"}

// Op is a function, with the factor of Scaled.
type Op struct {
	Fn     Fn
	Factor float64
}

func (o Op) String() string {
	switch {
	case o.Fn < Sum || o.Fn > Scaled:
		return fmt.Sprintf("Op(%d)", uint8(o.Fn))
	case o.Fn == Scaled:
		return fmt.Sprintf("Scaled(%v)", o.Factor)
	}
	return fns[o.Fn-1]
}

// ErrOp wraps what is wrong with an operation or its dtype.
var ErrOp = errors.New("no such operation on these elements")

// Check says what is wrong with an operation on elements of a dtype.
func Check(o Op, d device.Dtype) error {
	switch {
	case !d.Valid():
		return fmt.Errorf("%w: %v of %v; expected float32, float64, int32 or int64", ErrOp, o, d)
	case o.Fn < Sum || o.Fn > Scaled:
		return fmt.Errorf("%w: %v", ErrOp, o)
	case (o.Fn == Mean || o.Fn == Scaled) && !d.IsFloat():
		return fmt.Errorf("%w: %v of %v; expected float32 or float64", ErrOp, o, d)
	case (o.Fn == And || o.Fn == Or || o.Fn == Xor) && d.IsFloat():
		return fmt.Errorf("%w: %v of %v; expected int32 or int64", ErrOp, o, d)
	}
	return nil
}

// Into folds arrays of as many bytes as dst, one or more, into it. dst may be the first of them,
// and shares no memory with the others. Check has found nothing wrong.
func Into(dst []byte, o Op, d device.Dtype, from ...[]byte) {
	switch d {
	case device.Float32:
		floats[float32](dst, o, from)
	case device.Float64:
		floats[float64](dst, o, from)
	case device.Int32:
		integers[int32](dst, o, from)
	case device.Int64:
		integers[int64](dst, o, from)
	}
}

// block is how many elements are folded at a time, so that the result stays in the cache.
const block = 2048

func floats[T vec.Float](dst []byte, o Op, from [][]byte) {
	all, in := views[T](dst, from)
	loops, f := vec.Best[T](), T(o.Factor)
	fold := step(loops, o.Fn)
	var scaled []T
	if o.Fn == Scaled {
		scaled = make([]T, min(block, len(all)))
	}
	for lo := 0; lo < len(all); lo += block {
		hi := min(lo+block, len(all))
		out, a := all[lo:hi], in[0][lo:hi]
		if o.Fn == Scaled {
			loops.Scale(out, a, f)
			a = out
		}
		for _, x := range in[1:] {
			x = x[lo:hi]
			if o.Fn == Scaled { // rounded before it is added, on every processor
				loops.Scale(scaled[:hi-lo], x, f)
				x = scaled[:hi-lo]
			}
			fold(out, a, x)
			a = out
		}
		if o.Fn == Mean {
			n := T(len(in))
			for i, v := range a {
				out[i] = v / n
			}
			a = out
		}
		if len(in) == 1 {
			copy(out, a)
		}
	}
}

// step folds two rows.
func step[T vec.Float](loops *vec.Loops[T], fn Fn) func(o, a, b []T) {
	switch fn {
	case Prod:
		return loops.Mul
	case Min:
		return loops.Minimum
	case Max:
		return loops.Maximum
	}
	return loops.Add
}

func integers[T int32 | int64](dst []byte, o Op, from [][]byte) {
	out, in := views[T](dst, from)
	for i := range out {
		a := in[0][i]
		for _, x := range in[1:] {
			b := x[i]
			switch o.Fn {
			case Sum:
				a += b
			case Prod:
				a *= b
			case Min:
				a = min(a, b)
			case Max:
				a = max(a, b)
			case And:
				a &= b
			case Or:
				a |= b
			case Xor:
				a ^= b
			}
		}
		out[i] = a
	}
}

func views[T device.Number](dst []byte, from [][]byte) (out []T, in [][]T) {
	in = make([][]T, len(from))
	for i, b := range from {
		in[i] = device.As[T](b)
	}
	return device.As[T](dst), in
}
