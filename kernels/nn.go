package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/device"
)

// Gather picks rows of a table: (table [n, d…], ids of any shape, int32 or int64) → ids' shape +
// d…. An id out of [0, n) is an [IndexError] of Run.
type Gather struct{}

func (i Gather) String() string { return "Gather" }

// Infer takes a table of floats and ids.
func (i Gather) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 2); err != nil {
		return nil, err
	}
	table, ids := in[0], in[1]
	if err := sameFloats(i, in, in[:1]); err != nil {
		return nil, err
	}
	if !isIndex(ids.Dtype) {
		return nil, refuse(i, in, "ids must be int32 or int64")
	}
	if len(table.Shape) == 0 {
		return nil, refuse(i, in, "the table needs one or more axes")
	}
	return result(i, in, table.Dtype, slices.Concat(ids.Shape, table.Shape[1:]))
}

// ScatterAdd is the gradient of Gather: (ids, gy of ids' shape + d…) → [Rows, d…], each row the sum
// of the rows of gy with its id. An id out of [0, Rows) is an [IndexError] of Run.
type ScatterAdd struct{ Rows int }

func (i ScatterAdd) String() string { return fmt.Sprintf("ScatterAdd(rows=%d)", i.Rows) }

// Infer takes ids and a gradient of floats whose first axes are those of ids.
func (i ScatterAdd) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 2); err != nil {
		return nil, err
	}
	ids, gy := in[0], in[1]
	if !isIndex(ids.Dtype) {
		return nil, refuse(i, in, "ids must be int32 or int64")
	}
	if err := sameFloats(i, in, in[1:]); err != nil {
		return nil, err
	}
	r := len(ids.Shape)
	if len(gy.Shape) < r || !gy.Shape[:r].Equal(ids.Shape) {
		return nil, refuse(i, in, "the gradient's shape must begin with %v", ids.Shape)
	}
	return result(i, in, gy.Dtype, slices.Concat(device.Shape{i.Rows}, gy.Shape[r:]))
}

func (i ScatterAdd) flops(in, out []Type) int { return elems(in, 1) }

// Softmax is exp(x)/Σexp(x) along an axis, or its logarithm, computed without overflow: x → like x.
type Softmax struct {
	Axis int
	Log  bool
}

func (i Softmax) String() string { return fmt.Sprintf("Softmax(axis=%d, log=%t)", i.Axis, i.Log) }

// Infer takes one tensor of floats.
func (i Softmax) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	if err := axisOf(i, in, in[0], i.Axis); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// Of each element: maximum, difference, exponential, sum, quotient, or as much.
func (i Softmax) flops(in, out []Type) int { return 5 * elems(in, 0) }

func (i Softmax) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}

// SoftmaxGrad is the gradient of Softmax: (y, gy) → like y, where y is the result and gy its
// gradient.
type SoftmaxGrad struct {
	Axis int
	Log  bool
}

func (i SoftmaxGrad) String() string {
	return fmt.Sprintf("SoftmaxGrad(axis=%d, log=%t)", i.Axis, i.Log)
}

// Infer takes two tensors of floats of one type.
func (i SoftmaxGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	if err := sameShapes(i, in, in); err != nil {
		return nil, err
	}
	if err := axisOf(i, in, in[0], i.Axis); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (i SoftmaxGrad) flops(in, out []Type) int { return 5 * elems(in, 0) }

func (i SoftmaxGrad) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}

// CrossEntropy is the mean over rows of -log softmax(logits)[label]: (logits [n, c], labels [n],
// int32 or int64) → scalar. A label out of [0, c) is an [IndexError] of Run.
type CrossEntropy struct {
	// Classes is how many of the columns, the first, are logits, so that rows may lie further apart
	// than they are long; 0: all. What the others have is not read.
	Classes int
	// The logits are rows [First, First+n) of Rows, each of which has a label; 0: they are all.
	First, Rows int
}

func (i CrossEntropy) String() string {
	var by []string
	if i.Classes > 0 {
		by = append(by, fmt.Sprintf("classes=%d", i.Classes))
	}
	if i.Rows > 0 {
		by = append(by, fmt.Sprintf("from row %d of %d", i.First, i.Rows))
	}
	if by == nil {
		return "CrossEntropy"
	}
	return "CrossEntropy(" + strings.Join(by, ", ") + ")"
}

// Of is how many classes rows of so many columns have.
func (i CrossEntropy) Of(columns int) int {
	if i.Classes == 0 {
		return columns
	}
	return i.Classes
}

// Infer takes logits with one or more rows, and a label for each.
func (i CrossEntropy) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 2); err != nil {
		return nil, err
	}
	if err := i.admits(i, in); err != nil {
		return nil, err
	}
	return []Type{{in[0].Dtype, device.Shape{}}}, nil
}

func (i CrossEntropy) flops(in, out []Type) int { return 5 * elems(in, 0) }

func (i CrossEntropy) readsNarrow(k int) bool { return k == 0 }

func (i CrossEntropy) rounding() Rounding { return Rounding{Operands: true} }

// admits refuses wrong operands, also for its gradient, which is asked for then.
func (i CrossEntropy) admits(asked Instr, in []Type) error {
	logits, labels := in[0], in[1]
	if err := sameFloats(asked, in, in[:1]); err != nil {
		return err
	}
	switch {
	case !isIndex(labels.Dtype):
		return refuse(asked, in, "labels must be int32 or int64")
	case len(logits.Shape) != 2 || len(labels.Shape) != 1 || i.Rows == 0 && labels.Shape[0] != logits.Shape[0]:
		return refuse(asked, in, "expected logits (n, c) and labels (n)")
	case logits.Shape[0] == 0:
		return refuse(asked, in, "no rows have no mean")
	case i.Classes < 0 || i.Classes > logits.Shape[1]:
		return refuse(asked, in, "expected 0 to %d classes", logits.Shape[1])
	case i.Rows == 0 && i.First != 0 || i.Rows != 0 && i.Rows != labels.Shape[0] || i.First < 0 || i.First > i.Rows-logits.Shape[0] && i.Rows != 0:
		return refuse(asked, in, "expected %d rows of logits among %d labels, from row %d on", logits.Shape[0], i.Rows, i.First)
	}
	return nil
}

// CrossEntropyGrad is the gradient of CrossEntropy: (logits, labels, gy scalar) → like logits, with
// 0 in columns that are no classes.
type CrossEntropyGrad CrossEntropy

func (i CrossEntropyGrad) String() string {
	return strings.Replace(CrossEntropy(i).String(), "Entropy", "EntropyGrad", 1)
}

// Infer takes the operands of CrossEntropy and a scalar of the logits' dtype.
func (i CrossEntropyGrad) Infer(in []Type) ([]Type, error) {
	if err := expect(i, in, 3); err != nil {
		return nil, err
	}
	if err := CrossEntropy(i).admits(i, in); err != nil {
		return nil, err
	}
	if err := sameFloats(i, in, []Type{in[0], in[2]}); err != nil {
		return nil, err
	}
	if len(in[2].Shape) != 0 {
		return nil, refuse(i, in, "the gradient must be a scalar")
	}
	return []Type{in[0]}, nil
}

func (i CrossEntropyGrad) flops(in, out []Type) int { return 5 * elems(in, 0) }

func (i CrossEntropyGrad) readsNarrow(k int) bool { return k == 0 }

// Row by row; what all rows read must stay.
func (i CrossEntropyGrad) overwrites(in, out []Type, result, operand int) bool {
	return operand == 0
}

// Normalize is (x-mean)/√(variance+Eps) along the last axis, with the biased variance: layer norm
// without its affine part. x → like x.
type Normalize struct{ Eps float64 }

func (i Normalize) String() string { return fmt.Sprintf("Normalize(eps=%v)", i.Eps) }

// Infer takes one tensor of floats with one or more axes.
func (i Normalize) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	return inferNormalize(i, in)
}

func (i Normalize) again(device.Dtype) int { return 4 }

func (i Normalize) flops(in, out []Type) int { return 7 * elems(in, 0) }

func (i Normalize) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}

func inferNormalize(i Instr, in []Type) ([]Type, error) {
	if len(in[0].Shape) == 0 {
		return nil, refuse(i, in, "expected one or more axes")
	}
	return []Type{in[0]}, nil
}

// NormalizeGrad is the gradient of Normalize: (x, gy) → like x.
type NormalizeGrad struct{ Eps float64 }

func (i NormalizeGrad) String() string { return fmt.Sprintf("NormalizeGrad(eps=%v)", i.Eps) }

// Infer takes two tensors of floats of one type.
func (i NormalizeGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	if err := sameShapes(i, in, in); err != nil {
		return nil, err
	}
	return inferNormalize(i, in)
}

func (i NormalizeGrad) flops(in, out []Type) int { return 11 * elems(in, 0) }

func (i NormalizeGrad) readsNarrow(k int) bool { return k == 1 }

func (i NormalizeGrad) overwrites(in, out []Type, result, operand int) bool {
	return in[operand].Equal(out[result])
}

// LayerNorm normalises the last axis, of extent d, and gives it a scale and a shift of its own: (x,
// gamma [d], beta [d]) → like x. It is Normalize with its affine part.
type LayerNorm struct{ Eps float64 }

func (i LayerNorm) String() string { return fmt.Sprintf("LayerNorm(eps=%v)", i.Eps) }

// Infer takes tensors of floats of one dtype.
func (i LayerNorm) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 3); err != nil {
		return nil, err
	}
	if err := affine(i, in, in[1], in[2]); err != nil {
		return nil, err
	}
	return in[:1:1], nil
}

func (i LayerNorm) again(device.Dtype) int { return 4 }

func (i LayerNorm) rounding() Rounding { return Rounding{Result: true} }

func (i LayerNorm) flops(in, out []Type) int { return 9 * elems(in, 0) }

// Row by row; what all rows read must stay.
func (i LayerNorm) overwrites(in, out []Type, result, operand int) bool {
	return operand == 0
}

// affine checks that parameters have the extent of the last axis of in[0].
func affine(i Instr, in []Type, params ...Type) error {
	x := in[0].Shape
	for _, p := range params {
		if len(x) == 0 || len(p.Shape) != 1 || p.Shape[0] != x[len(x)-1] {
			return refuse(i, in, "expected (…, d) and parameters (d)")
		}
	}
	return nil
}

// LayerNormGrad is the gradient of LayerNorm: (x, gamma, gy like x) → (gx, ggamma, gbeta).
type LayerNormGrad struct{ Eps float64 }

func (i LayerNormGrad) String() string { return fmt.Sprintf("LayerNormGrad(eps=%v)", i.Eps) }

// Infer takes tensors of floats of one dtype.
func (i LayerNormGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 3); err != nil {
		return nil, err
	}
	if err := affine(i, in, in[1]); err != nil {
		return nil, err
	}
	if !in[2].Shape.Equal(in[0].Shape) {
		return nil, refuse(i, in, "the gradient has not the shape of x")
	}
	return []Type{in[0], in[1], in[1]}, nil
}

func (i LayerNormGrad) flops(in, out []Type) int { return 15 * elems(in, 0) }

func (i LayerNormGrad) readsNarrow(k int) bool { return k == 2 }

// Row by row; what all rows read must stay.
func (i LayerNormGrad) overwrites(in, out []Type, result, operand int) bool {
	return result == 0 && operand != 1
}
