package kernels

import (
	"fmt"
	"math"

	"github.com/weft-project/weft/device"
)

// BroadcastTo repeats elements by numpy's rules until the shape is Shape; every dtype.
type BroadcastTo struct{ Shape device.Shape }

func (i BroadcastTo) String() string { return "BroadcastTo" + i.Shape.String() }

// Infer takes one tensor whose shape broadcasts to Shape.
func (i BroadcastTo) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 1); err != nil {
		return nil, err
	}
	if s, ok := broadcastShapes(in[0].Shape, i.Shape); !ok || !s.Equal(i.Shape) {
		return nil, refuse(i, in, "%v does not broadcast to %v", in[0].Shape, i.Shape)
	}
	return result(i, in, in[0].Dtype, i.Shape)
}

func (i BroadcastTo) again(device.Dtype) int { return 0 }

func (i BroadcastTo) rounding() Rounding { return Rounding{Moves: true} }

// Reshape gives the same elements another shape; every dtype. It is a copy here; executors may
// share the buffer instead.
type Reshape struct{ Shape device.Shape }

func (i Reshape) String() string { return "Reshape" + i.Shape.String() }

// Infer takes one tensor with as many elements as Shape.
func (i Reshape) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 1); err != nil {
		return nil, err
	}
	out, err := result(i, in, in[0].Dtype, i.Shape)
	if err != nil {
		return nil, err
	}
	if got, want := in[0].Shape.Elems(), i.Shape.Elems(); got != want {
		return nil, refuse(i, in, "%d elements do not fill %v", got, i.Shape)
	}
	return out, nil
}

func (i Reshape) again(device.Dtype) int { return 0 }

func (i Reshape) rounding() Rounding { return Rounding{Moves: true} }

// Transpose reorders axes: axis k of the result is axis Perm[k] of the operand; every dtype.
type Transpose struct{ Perm []int }

func (i Transpose) String() string { return fmt.Sprintf("Transpose%v", i.Perm) }

// Infer takes one tensor with len(Perm) axes.
func (i Transpose) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 1); err != nil {
		return nil, err
	}
	x := in[0].Shape
	if len(i.Perm) != len(x) {
		return nil, refuse(i, in, "expected %d axes", len(i.Perm))
	}
	s, seen := make(device.Shape, len(x)), make([]bool, len(x))
	for k, axis := range i.Perm {
		if err := axisOf(i, in, in[0], axis); err != nil {
			return nil, err
		}
		if seen[axis] {
			return nil, refuse(i, in, "axis %d is given twice", axis)
		}
		seen[axis], s[k] = true, x[axis]
	}
	return result(i, in, in[0].Dtype, s)
}

func (i Transpose) again(device.Dtype) int { return 0 }

func (i Transpose) rounding() Rounding { return Rounding{Moves: true} }

// Slice keeps [Start, Stop) of an axis; every dtype.
type Slice struct{ Axis, Start, Stop int }

func (i Slice) String() string { return fmt.Sprintf("Slice(axis=%d, %d:%d)", i.Axis, i.Start, i.Stop) }

// Infer takes one tensor; 0 ≤ Start ≤ Stop ≤ the axis' extent.
func (i Slice) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 1); err != nil {
		return nil, err
	}
	if err := axisOf(i, in, in[0], i.Axis); err != nil {
		return nil, err
	}
	if i.Start < 0 || i.Start > i.Stop || i.Stop > in[0].Shape[i.Axis] {
		return nil, refuse(i, in, "expected 0 ≤ start ≤ stop ≤ %d", in[0].Shape[i.Axis])
	}
	return result(i, in, in[0].Dtype, withExtent(in[0].Shape, i.Axis, i.Stop-i.Start))
}

func (i Slice) again(device.Dtype) int { return 0 }

func (i Slice) rounding() Rounding { return Rounding{Moves: true} }

func withExtent(s device.Shape, axis, n int) device.Shape {
	s = s.Clone()
	s[axis] = n
	return s
}

// Pad adds zeros to an axis, Before and After what is there; every dtype. It is the gradient of
// Slice.
type Pad struct{ Axis, Before, After int }

func (i Pad) String() string {
	return fmt.Sprintf("Pad(axis=%d, before=%d, after=%d)", i.Axis, i.Before, i.After)
}

// Infer takes one tensor; neither side may be negative.
func (i Pad) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 1); err != nil {
		return nil, err
	}
	if err := axisOf(i, in, in[0], i.Axis); err != nil {
		return nil, err
	}
	n := in[0].Shape[i.Axis]
	if i.Before < 0 || i.After < 0 || i.Before > math.MaxInt-n || i.After > math.MaxInt-n-i.Before {
		return nil, refuse(i, in, "before and after must be 0 or more, and small enough to add up")
	}
	return result(i, in, in[0].Dtype, withExtent(in[0].Shape, i.Axis, i.Before+n+i.After))
}

// Concat joins one or more tensors along an axis; every dtype.
type Concat struct{ Axis int }

func (i Concat) String() string { return fmt.Sprintf("Concat(axis=%d)", i.Axis) }

// Infer takes tensors of one dtype whose shapes are the same except along Axis.
func (i Concat) Infer(in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, refuse(i, in, "expected one or more operands")
	}
	if err := expect(i, in, len(in)); err != nil {
		return nil, err
	}
	if err := axisOf(i, in, in[0], i.Axis); err != nil {
		return nil, err
	}
	total := 0
	for k, t := range in {
		if t.Dtype != in[0].Dtype {
			return nil, refuse(i, in, "the dtypes differ; cast operand %d", k)
		}
		if len(t.Shape) != len(in[0].Shape) || !withExtent(t.Shape, i.Axis, 0).Equal(withExtent(in[0].Shape, i.Axis, 0)) {
			return nil, refuse(i, in, "operand %d differs in another axis than %d", k, i.Axis)
		}
		if t.Shape[i.Axis] > math.MaxInt-total {
			return nil, refuse(i, in, "too many elements")
		}
		total += t.Shape[i.Axis]
	}
	return result(i, in, in[0].Dtype, withExtent(in[0].Shape, i.Axis, total))
}

// Cast changes the dtype, between any two. Floats become integers by dropping the fraction; what is
// out of range becomes the nearest integer there is, and NaN becomes 0. int64 to int32 keeps the
// low bits.
type Cast struct{ To device.Dtype }

func (i Cast) String() string { return fmt.Sprintf("Cast(%v)", i.To) }

// Infer takes one tensor.
func (i Cast) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 1); err != nil {
		return nil, err
	}
	if !i.To.Valid() {
		return nil, refuse(i, in, "there is no dtype %v", i.To)
	}
	return []Type{{i.To, in[0].Shape}}, nil
}

func (i Cast) again(device.Dtype) int { return 1 }

// Fill makes a tensor of one value, converted as [Cast] does; it has no operands.
type Fill struct {
	Type Type
	C    float64
}

func (i Fill) String() string { return fmt.Sprintf("Fill(%v, %v)", i.Type, i.C) }

// Infer takes no operands.
func (i Fill) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 0); err != nil {
		return nil, err
	}
	if !i.Type.Dtype.Valid() {
		return nil, refuse(i, in, "there is no dtype %v", i.Type.Dtype)
	}
	return result(i, in, i.Type.Dtype, i.Type.Shape)
}

func (i Fill) again(device.Dtype) int { return 0 }

func (i Fill) rounding() Rounding { return Rounding{Moves: true} }
