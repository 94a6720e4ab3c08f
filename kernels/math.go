package kernels

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
)

// MatMul multiplies matrices in the last two axes, (…, m, k)·(…, k, n) → (…, m, n); the axes before
// broadcast. TransA and TransB say that an operand's last two axes are stored swapped.
type MatMul struct{ TransA, TransB bool }

func (i MatMul) String() string {
	return fmt.Sprintf("MatMul(transA=%t, transB=%t)", i.TransA, i.TransB)
}

// Infer takes two tensors of one floating-point dtype with two or more axes.
func (i MatMul) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	a, b := in[0].Shape, in[1].Shape
	if len(a) < 2 || len(b) < 2 {
		return nil, refuse(i, in, "expected two or more axes each")
	}
	m, ka := matrixDims(a, i.TransA)
	kb, n := matrixDims(b, i.TransB)
	if ka != kb {
		return nil, refuse(i, in, "the inner extents %d and %d differ", ka, kb)
	}
	s, ok := broadcastShapes(a[:len(a)-2], b[:len(b)-2])
	if !ok {
		return nil, refuse(i, in, "the axes before the last two do not broadcast")
	}
	return result(i, in, in[0].Dtype, append(s, m, n))
}

func (i MatMul) flops(in, out []Type) int {
	_, k := matrixDims(in[0].Shape, i.TransA)
	return 2 * k * elems(out, 0)
}

func (i MatMul) rounding() Rounding { return Rounding{Result: true, Operands: true, Factors: true} }

// matrixDims gives rows and columns of the last two axes, as used.
func matrixDims(s device.Shape, trans bool) (rows, cols int) {
	rows, cols = s[len(s)-2], s[len(s)-1]
	if trans {
		return cols, rows
	}
	return rows, cols
}

// ReduceFn is how elements are brought together.
type ReduceFn uint8

// The reductions. A NaN among the elements makes each of them NaN.
const (
	Sum ReduceFn = iota
	Mean
	Max
	numReduce
)

var reduceNames = [numReduce]string{"Sum", "Mean", "Max"}

func (f ReduceFn) String() string {
	if f < numReduce {
		return reduceNames[f]
	}
	return fmt.Sprintf("ReduceFn(%d)", uint8(f))
}

// Reduce brings the elements along Axes together. Nil Axes are all axes; an empty list that is not
// nil is none. Keep leaves the reduced axes in the result with extent 1.
type Reduce struct {
	Fn   ReduceFn
	Axes []int // distinct, counted from 0
	Keep bool
}

func (i Reduce) String() string {
	return fmt.Sprintf("%v(axes=%s, keep=%t)", i.Fn, axesString(i.Axes), i.Keep)
}

func axesString(axes []int) string {
	if axes == nil {
		return "all"
	}
	return fmt.Sprint(axes)
}

// Infer takes one tensor of floats. Mean and Max refuse to reduce an empty extent.
func (i Reduce) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	if i.Fn >= numReduce {
		return nil, refuse(i, in, "there is no such reduction")
	}
	mask, err := reducedAxes(i, in, i.Axes)
	if err != nil {
		return nil, err
	}
	if i.Fn != Sum {
		if err := noneEmpty(i, in, mask, i.Fn); err != nil {
			return nil, err
		}
	}
	return result(i, in, in[0].Dtype, reducedShape(in[0].Shape, mask, i.Keep))
}

func (i Reduce) flops(in, out []Type) int { return elems(in, 0) }

func (i Reduce) readsNarrow(int) bool { return true }

// noneEmpty refuses to reduce an empty axis of in[0].
func noneEmpty(i Instr, in []Type, mask []bool, fn ReduceFn) error {
	for axis, reduced := range mask {
		if reduced && in[0].Shape[axis] == 0 {
			return refuse(i, in, "axis %d is empty and has no %v", axis, fn)
		}
	}
	return nil
}

// reducedAxes marks the axes of in[0] that a reduction removes.
func reducedAxes(i Instr, in []Type, axes []int) ([]bool, error) {
	mask := make([]bool, len(in[0].Shape))
	if axes == nil {
		for k := range mask {
			mask[k] = true
		}
	}
	for _, axis := range axes {
		if err := axisOf(i, in, in[0], axis); err != nil {
			return nil, err
		}
		if mask[axis] {
			return nil, refuse(i, in, "axis %d is given twice", axis)
		}
		mask[axis] = true
	}
	return mask, nil
}

func reducedShape(x device.Shape, mask []bool, keep bool) device.Shape {
	s := device.Shape{}
	for axis, n := range x {
		switch {
		case !mask[axis]:
			s = append(s, n)
		case keep:
			s = append(s, 1)
		}
	}
	return s
}

// MaxGrad is the gradient of Reduce{Max}: (x, y, gy) → like x, where y is the result and gy its
// gradient. Elements that tie for the maximum share evenly.
type MaxGrad struct {
	Axes []int
	Keep bool
}

func (i MaxGrad) String() string {
	return fmt.Sprintf("MaxGrad(axes=%s, keep=%t)", axesString(i.Axes), i.Keep)
}

// Infer takes the operand of Reduce{Max} and two tensors like its result.
func (i MaxGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 3); err != nil {
		return nil, err
	}
	mask, err := reducedAxes(i, in, i.Axes)
	if err != nil {
		return nil, err
	}
	if err := noneEmpty(i, in, mask, Max); err != nil {
		return nil, err
	}
	y := reducedShape(in[0].Shape, mask, i.Keep)
	if k := slices.IndexFunc(in[1:], func(t Type) bool { return !t.Shape.Equal(y) }); k >= 0 {
		return nil, refuse(i, in, "operand %d must have the result's shape %v", k+1, y)
	}
	return []Type{in[0]}, nil
}

func (i MaxGrad) flops(in, out []Type) int { return 2 * elems(in, 0) }
