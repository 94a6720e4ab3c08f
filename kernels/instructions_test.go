package kernels

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
)

func f32(s ...int) Type { return Type{device.Float32, s} }
func f64(s ...int) Type { return Type{device.Float64, s} }
func i32(s ...int) Type { return Type{device.Int32, s} }
func i64(s ...int) Type { return Type{device.Int64, s} }

func TestInferRefusesOperandsThatDoNotFitAndShowsThem(t *testing.T) {
	for _, c := range []struct {
		i   Instr
		in  []Type
		why string
	}{
		{Unary{Fn: Exp}, []Type{i32(2)}, "expected float32 or float64"},
		{Unary{Fn: numUnary}, []Type{f32(2)}, "no such function"},
		{Unary{}, nil, "of nothing: expected 1 operands, got 0"},
		{Unary{}, []Type{{device.Invalid, nil}}, "no valid dtype"},
		{Unary{}, []Type{f32(-1)}, "negative extent"},
		{Unary{}, []Type{f32(math.MaxInt, 2)}, "too many elements"},
		{Binary{Fn: Add}, []Type{f32(2, 3), f32(4)}, "do not broadcast"},
		{Binary{Fn: Add}, []Type{f32(2), f64(2)}, "dtypes differ"},
		{Binary{Fn: numBinary}, []Type{f32(2), f32(2)}, "no such function"},
		{Binary{}, []Type{f32(math.MaxInt/8, 1), f32(1, 2)}, "too many elements"},
		{MatMul{}, []Type{f32(2, 3), f32(4, 5)}, "inner extents 3 and 4"},
		{MatMul{TransB: true}, []Type{f32(2, 3), f32(3, 5)}, "inner extents 3 and 5"},
		{MatMul{}, []Type{f32(3), f32(3, 5)}, "two or more axes"},
		{MatMul{}, []Type{f32(2, 2, 3), f32(3, 3, 5)}, "before the last two"},
		{Reduce{Axes: []int{-1}}, []Type{f32(2, 3)}, "negative ones are not resolved"},
		{Reduce{Axes: []int{1, 1}}, []Type{f32(2, 3)}, "given twice"},
		{Reduce{Fn: Mean}, []Type{f32(0, 3)}, "axis 0 is empty and has no Mean"},
		{Reduce{Fn: Max, Axes: []int{1}}, []Type{f32(3, 0)}, "axis 1 is empty and has no Max"},
		{Reduce{Fn: numReduce}, []Type{f32(3)}, "no such reduction"},
		{MaxGrad{Axes: []int{0}}, []Type{f32(2, 3), f32(3), f32(2)}, "operand 2 must have the result's shape (3)"},
		{MaxGrad{Axes: []int{0}}, []Type{f32(0, 3), f32(3), f32(3)}, "is empty"},
		{BroadcastTo{device.Shape{2}}, []Type{i64(3)}, "does not broadcast"},
		{BroadcastTo{device.Shape{1}}, []Type{i64(3)}, "does not broadcast"},
		{BroadcastTo{device.Shape{3}}, []Type{i64(1, 3)}, "does not broadcast"},
		{Reshape{device.Shape{4}}, []Type{i64(3)}, "3 elements do not fill (4)"},
		{Reshape{device.Shape{-1, -3}}, []Type{i64(3)}, "negative"},
		{Transpose{[]int{0}}, []Type{f32(2, 3)}, "expected 1 axes"},
		{Transpose{[]int{0, 0}}, []Type{f32(2, 3)}, "given twice"},
		{Transpose{[]int{0, 2}}, []Type{f32(2, 3)}, "axis 2 does not exist"},
		{Slice{0, 2, 1}, []Type{f32(3)}, "start ≤ stop ≤ 3"},
		{Slice{0, 0, 4}, []Type{f32(3)}, "start ≤ stop ≤ 3"},
		{Pad{0, -1, 0}, []Type{f32(3)}, "0 or more"},
		{Pad{0, math.MaxInt, math.MaxInt}, []Type{f32(3)}, "small enough"},
		{Concat{0}, nil, "one or more operands"},
		{Concat{0}, []Type{f32(3), i32(3)}, "cast operand 1"},
		{Concat{0}, []Type{f32(3, 2), f32(3, 3)}, "another axis than 0"},
		{Concat{0}, []Type{f32(3, 2), f32(3)}, "another axis than 0"},
		{Gather{}, []Type{f32(3, 2), f32(3)}, "ids must be int32 or int64"},
		{Gather{}, []Type{f32(), i32(3)}, "one or more axes"},
		{Gather{}, []Type{i32(3), i32(3)}, "expected float32"},
		{ScatterAdd{3}, []Type{i32(2), f32(3, 4)}, "must begin with (2)"},
		{ScatterAdd{-1}, []Type{i32(2), f32(2, 4)}, "negative"},
		{Softmax{Axis: 1}, []Type{f32(3)}, "axis 1 does not exist"},
		{Softmax{}, []Type{f32()}, "axis 0 does not exist"},
		{SoftmaxGrad{}, []Type{f32(3), f32(4)}, "shapes differ"},
		{CrossEntropy{}, []Type{f32(0, 3), i32(0)}, "no rows"},
		{CrossEntropy{}, []Type{f32(2, 3), i32(3)}, "logits (n, c) and labels (n)"},
		{CrossEntropy{}, []Type{f32(2, 3), f32(2)}, "labels must be int32 or int64"},
		{CrossEntropy{First: 1}, []Type{f32(2, 3), i32(2)}, "from row 1 on"},
		{CrossEntropy{First: 1, Rows: 2}, []Type{f32(2, 3), i32(2)}, "2 rows of logits among 2 labels"},
		{CrossEntropy{First: -1, Rows: 3}, []Type{f32(2, 3), i32(3)}, "from row -1 on"},
		{CrossEntropy{Rows: 4}, []Type{f32(2, 3), i32(3)}, "among 4 labels"},
		{CrossEntropyGrad{First: 2, Rows: 3}, []Type{f32(2, 3), i32(3), f32()}, "from row 2 on"},
		{CrossEntropyGrad{}, []Type{f32(2, 3), i32(2), f32(1)}, "must be a scalar"},
		{CrossEntropyGrad{}, []Type{f32(2, 3), i32(2), f64()}, "dtypes differ"},
		{Normalize{}, []Type{f32()}, "one or more axes"},
		{NormalizeGrad{}, []Type{f32(2), f32(3)}, "shapes differ"},
		{LayerNorm{}, []Type{f32(2, 3), f32(2), f32(3)}, "parameters (d)"},
		{LayerNorm{}, []Type{f32(), f32(2), f32(3)}, "parameters (d)"},
		{LayerNorm{}, []Type{f32(2, 3), f32(3), f64(3)}, "dtypes differ"},
		{LayerNormGrad{}, []Type{f32(2, 3), f32(3), f32(3)}, "has not the shape of x"},
		{Attention{}, []Type{f32(1, 2, 3, 4), f32(1, 2, 3, 4)}, "expected 3 operands, got 2"},
		{Attention{}, []Type{f32(1, 2, 3, 4), f32(1, 5, 2, 4), f32(1, 5, 2, 4)}, "divide those of q: k has 2 heads, q 3"},
		{Attention{}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 6, 3, 4)}, "divide those of q: s is 6 of v, 5 of k"},
		{Attention{}, []Type{f32(2, 3, 4), f32(2, 3, 4), f32(2, 3, 4)}, "divide those of q: q has 3 dimensions, k has 3 dimensions, v has 3 dimensions"},
		{Attention{}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3)}, "divide those of q: v has 3 dimensions"},
		{Attention{}, []Type{f32(2, 2, 3, 4), f32(1, 5, 3, 6), f32(2, 5, 1, 6)}, "divide those of q: b is 1 of k, 2 of q, b is 2 of v, 1 of k, heads is 1 of v, 3 of k, d is 6 of k, 4 of q"},
		{Attention{}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), i64(2)}, "got 4: q, k, v (a mask goes only with Masked, a key only with a Drop above 0)"},
		{Attention{Drop: 0.5}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), i64(2), f32(1, 1, 1, 5)}, "dropped (a mask goes only with Masked"},
		{Attention{}, []Type{f32(1, 2, 3, 4), f64(1, 2, 3, 4), f64(1, 2, 3, 4)}, "dtypes differ"},
		{Attention{Causal: true}, []Type{f32(1, 3, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 3, 4)}, "the first would see none of 2"},
		{Attention{}, []Type{f32(1, 2, 0, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4)}, "divide those of q"},
		{Attention{}, []Type{f32(1, 2, 3, 4), f32(1, 5, 0, 4), f32(1, 5, 0, 4)}, "divide those of q"},
		{Attention{Masked: true}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4)}, "expected 4 operands, got 3"},
		{Attention{Masked: true}, []Type{f32(2, 2, 3, 4), f32(2, 5, 1, 4), f32(2, 5, 1, 4), f32(2, 3, 2, 4)}, "a mask (b, heads, t, s)"},
		{Attention{Masked: true}, []Type{f32(2, 2, 3, 4), f32(2, 5, 1, 4), f32(2, 5, 1, 4), f32(2, 5)}, "a mask (b, heads, t, s)"},
		{Attention{Masked: true}, []Type{f32(2, 2, 3, 4), f32(2, 5, 1, 4), f32(2, 5, 1, 4), f64(2, 1, 1, 5)}, "dtypes differ"},
		{Attention{Drop: 0.1}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4)}, "expected 4 operands, got 3"},
		{Attention{Drop: 0.1}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), f32(2)}, "the key must be"},
		{Attention{Drop: math.NaN()}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), i64(2)}, "a probability of NaN"},
		{AttentionGrad{Drop: -1}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), f32(1, 2, 3, 4), f32(1, 3, 2), f32(1, 2, 3, 4), i64(2)}, "a probability of -1"},
		{Viewed{Attention{Drop: 0.1}, []*View{nil, nil, nil, Whole(device.Shape{2})}}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), i64(2)}, "a key is read as it is"},
		{AttentionGrad{}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 3), f32(1, 2, 3, 4)}, "logarithms (1, 3, 2)"},
		{AttentionGrad{Joined: true}, []Type{f32(1, 2, 3, 4), f32(1, 5, 3, 4), f32(1, 5, 3, 4), f32(1, 2, 3, 4), f32(1, 3, 2), f32(1, 2, 3, 4)}, "do not lie side by side"},
		{Cast{}, []Type{f32(2)}, "no dtype"},
		{Fill{Type: f32(-1)}, nil, "negative"},
		{Fill{}, nil, "no dtype"},
		{Update{Rule: SGD, Step: 1}, []Type{f32(2), f32(2), f32(2)}, "expected 2 operands, got 3"},
		{Update{Rule: SGD, Step: 1, Momentum: 1}, []Type{f32(2), f32(2)}, "expected 3 operands, got 2"},
		{Update{Rule: SGD, Step: 1, Nesterov: true}, []Type{f32(2), f32(2)}, "Nesterov needs a momentum"},
		{Update{Rule: Adam}, []Type{f32(2), f32(2), f32(2), f32(2)}, "steps count from 1"},
		{Update{Rule: Adam, Step: 1}, []Type{f32(2), f32(2), f32(2), f32(3)}, "shapes differ"},
		{Update{Rule: Adam, Step: 1, AMSGrad: true}, []Type{f32(2), f32(2), f32(2), f32(2)}, "expected 5 operands, got 4"},
		{Update{Rule: Adam, Step: 1}, []Type{i32(2), i32(2), i32(2), i32(2)}, "expected float32 or float64"},
		{Update{Rule: "Lion", Step: 1}, []Type{f32(2), f32(2)}, "no such rule as \"Lion\""},
		{Update{Step: 1}, []Type{f32(2), f32(2)}, "no such rule"},
		{SumSquares{}, []Type{f32(2)}, "expected 2 operands"},
		{SumSquares{}, []Type{f32(2), f32()}, "the sum must be float64()"},
		{SumSquares{}, []Type{i32(2), f64()}, "expected float32 or float64"},
		{NonFinite{}, []Type{i32(2)}, "expected float32 or float64"},
		{OnRows{}, []Type{f32(5, 2), f32(3, 2), i64(3)}, "no update"},
		{OnRows{Of: OnRows{Of: Binary{}}}, []Type{f32(5, 2), f32(3, 2), i64(3)}, "no update"},
		{OnRows{Of: Binary{}, Sum: true}, []Type{f32(5, 2), f32(3, 2), i64(3)}, "takes no sums"},
		{OnRows{Of: Update{Rule: SGD, Step: 1, Missed: true}}, []Type{f32(5, 2), f32(3, 2), i64(3)}, "the count of steps"},
		{OnRows{Of: Unary{}}, []Type{f32(5, 2), f32(3, 2), i64(3)}, "no update"},
		{UpdateMany{Update{Rule: SGD, Step: 1}}, nil, "2 operands for each"},
		{UpdateMany{Update{Rule: SGD, Step: 1}}, []Type{f32(2), f32(2), f32(3)}, "2 operands for each"},
		{UpdateMany{Update{Rule: SGD, Step: 1}}, []Type{f32(2), f32(2), f64(3), f64(3)}, "dtypes differ"},
		{UpdateMany{Update{Rule: SGD, Step: 1}}, []Type{f32(2), f32(2), f32(3), f32(4)}, "shapes differ"},
		{UpdateMany{Update{Rule: SGD}}, []Type{f32(2), f32(2)}, "steps count from 1"},
		{OnRows{Of: Update{Rule: SGD, Step: 1}}, []Type{f32(5, 2), f32(3, 2), i64(3, 1)}, "one axis"},
		{OnRows{Of: Update{Rule: SGD, Step: 1}}, []Type{f32(5, 2), f32(3, 2), f32(3)}, "int32 or int64"},
		{OnRows{Of: Update{Rule: SGD, Step: 1}}, []Type{f32(5, 2), f32(2, 2), i64(3)}, "operand 1 has not the rows"},
		{OnRows{Of: Binary{}}, []Type{f32(5, 2), f32(3, 1), i64(3)}, "operand 1 has not the rows"},
		{OnRows{Of: Update{Rule: SGD, Step: 1}}, []Type{f32(), f32(3), i64(3)}, "operand 0 has not the rows"},
		{OnRows{Of: Update{Rule: SGD, Step: 1}}, []Type{f32(5), i64(3)}, "expected 3 operands"},
		{OnRows{Of: Update{Rule: SGD, Step: 1}}, []Type{f32(5), f64(3), i64(3)}, "dtypes differ"},
		{OnRows{Of: Update{Rule: Adam, Step: 1}}, []Type{f32(5), f32(3), f32(5), f32(4), i64(3)}, "operand 3 has not the rows"},
		{Conv2d{Square(3, 1, 0)}, []Type{f32(2, 3, 8, 8), f32(4, 2, 3, 3)}, "images of 3 channels, kernels of 2"},
		{Conv2d{Square(3, 1, 0)}, []Type{f32(2, 3, 8, 8), f32(4, 3, 3, 2)}, "kernels (out channels, channels, 3, 3)"},
		{Conv2d{Square(3, 1, 0)}, []Type{f32(3, 8, 8), f32(4, 3, 3, 3)}, "operand 0 must be images"},
		{Conv2d{Square(3, 1, 0)}, []Type{f32(2, 3, 8, 2), f32(4, 3, 3, 3)}, "reaches over 3 does not fit into 2"},
		{Conv2d{Square(3, 1, 0)}, []Type{f32(2, 3, 8, 8), f64(4, 3, 3, 3)}, "dtypes differ"},
		{Conv2d{Square(0, 1, 0)}, []Type{f32(2, 3, 8, 8), f32(4, 3, 0, 0)}, "at least 1"},
		{Conv2d{Square(1, -1, 0)}, []Type{f32(2, 3, 8, 8), f32(4, 3, 1, 1)}, "at least 1"},
		{Conv2d{Square(1, 1, -1)}, []Type{f32(2, 3, 8, 8), f32(4, 3, 1, 1)}, "padding must be at least 0"},
		{Conv2d{Square(1, 1, math.MaxInt)}, []Type{f32(2, 3, 8, 8), f32(4, 3, 1, 1)}, "padding"},
		{Conv2d{Window{Kernel: [2]int{2, 2}, Dilation: [2]int{1, math.MaxInt}}}, []Type{f32(2, 3, 8, 8), f32(4, 3, 2, 2)}, "at most"},
		{Conv2dGradX{Square(3, 1, 0), 8, 8}, []Type{f32(4, 3, 3, 3), f32(2, 4, 6, 5)}, "result's shape (2, 4, 6, 6)"},
		{Conv2dGradX{Square(3, 1, 0), -8, 8}, []Type{f32(4, 3, 3, 3), f32(2, 4, 6, 6)}, "negative"},
		{Conv2dGradX{Square(3, 1, 0), 8, 8}, []Type{f32(4, 3, 3, 3), f32(2, 4, 6)}, "operand 1 must be images"},
		{Conv2dGradW{Square(3, 1, 0)}, []Type{f32(2, 3, 8, 8), f32(3, 4, 6, 6)}, "result's shape (2, 4, 6, 6)"},
		{Conv2dGradW{Square(3, 1, 0)}, []Type{f32(2, 3, 8, 8), f32()}, "operand 1 must be images"},
		{Im2col{}, []Type{f32(2, 3, 8, 8)}, "at least 1"},
		{Im2col{Window: Square(1, 1, 0)}, []Type{f32(2)}, "expected images"},
		{Im2col{Window: Square(2, 1, 0)}, []Type{i32(2, 3, 8, 8)}, "expected float32 or float64"},
		{Im2col{Window: Square(1<<20, 1, 1<<20)}, []Type{f32(1, 1<<10, 1<<10, 1)}, "too many elements"},
		{Col2im{Im2col{Window: Square(2, 1, 0)}, 3, 8, 8}, []Type{f32(2, 12, 48)}, "have columns float32(2, 12, 49)"},
		{Col2im{Im2col{Window: Square(2, 1, 0)}, -3, 8, 8}, []Type{f32(2, 12, 49)}, "negative"},
		{Col2im{}, []Type{f32()}, "expected columns"},
		{MaxPool2d{Square(2, 2, 0)}, []Type{f32(2, 3, 1, 8)}, "reaches over 2 does not fit into 1"},
		{MaxPool2d{Square(2, 2, 0)}, []Type{f32(2, 3, 8)}, "must be images"},
		{MaxPool2dGrad{Square(2, 2, 0)}, []Type{f32(2, 3, 8, 8), f32(2, 3, 4, 8)}, "result's shape (2, 3, 4, 4)"},
		{AvgPool2d{}, []Type{f32(2, 3, 8, 8)}, "at least 1"},
		{AvgPool2dGrad{AvgPool2d{Square(2, 2, 0), true}, 8, 8}, []Type{f32(2, 3, 4, 3)}, "result's shape (2, 3, 4, 4)"},
		{AvgPool2dGrad{AvgPool2d{Square(2, 2, 0), true}, 8, 8}, []Type{f32(2, 3, 4)}, "must be images"},
		{MaxPool2d{Square(2, 2, 2)}, []Type{f32(2, 3, 8, 8)}, "padding must be at most half of the kernel: 2 where it reaches over 2"},
		{MaxPool2d{Window{Kernel: [2]int{3, 3}, After: [2]int{0, 2}}}, []Type{f32(2, 3, 8, 8)}, "at most half"},
		{MaxPool2dGrad{Square(3, 1, 2)}, []Type{f32(2, 3, 8, 8), f32(2, 3, 10, 10)}, "at most half"},
		{AvgPool2d{Window: Square(1, 1, 1)}, []Type{f32(2, 3, 8, 8)}, "at most half"},
		{AvgPool2dGrad{AvgPool2d{Square(3, 1, 2), true}, 8, 8}, []Type{f32(2, 3, 10, 10)}, "at most half"},
		{Random{Type: f32(2)}, []Type{i64(3)}, "the key must be int64(2)"},
		{Random{Type: f32(2)}, []Type{i32(2)}, "the key must be int64(2)"},
		{Random{Type: i32(2)}, []Type{i64(2)}, "float32 or float64"},
		{Random{Type: f32(-2)}, []Type{i64(2)}, "negative"},
		{Random{Fn: numRandom, Type: f32(2)}, []Type{i64(2)}, "no such distribution"},
		{Random{Fn: Bernoulli, Type: f32(2), P: 1.5}, []Type{i64(2)}, "a probability of 1.5"},
		{Dropout{math.NaN()}, []Type{f32(2), i64(2)}, "a probability of NaN, expected one from 0 to 1"},
		{Dropout{}, []Type{f32(2), f32(2)}, "the key must be"},
		{Dropout{}, []Type{i64(2), i64(2)}, "expected float32"},
	} {
		_, err := c.i.Infer(c.in)
		require.ErrorIs(t, err, ErrOperands, "%v", c.i)
		var e *OperandsError
		require.ErrorAs(t, err, &e, "%v", c.i)
		require.ErrorContains(t, err, c.why)
		require.ErrorContains(t, err, c.i.String())
		for _, in := range c.in {
			require.ErrorContains(t, err, in.String())
		}
	}
}

func TestInferGivesTheTypesOfResults(t *testing.T) {
	for _, c := range []struct {
		i    Instr
		in   []Type
		want []Type
	}{
		{Binary{}, []Type{f32(5, 1, 3), f32(4, 1)}, []Type{f32(5, 4, 3)}},
		{Binary{}, []Type{f32(1), f32(0)}, []Type{f32(0)}},
		{MatMul{TransA: true, TransB: true}, []Type{f64(7, 1, 3, 2), f64(6, 5, 3)}, []Type{f64(7, 6, 2, 5)}},
		{Reduce{}, []Type{f32(2, 3)}, []Type{f32()}},
		{Reduce{Axes: []int{}}, []Type{f32(2, 3)}, []Type{f32(2, 3)}},
		{Reduce{Axes: []int{0}, Keep: true}, []Type{f32(2, 3)}, []Type{f32(1, 3)}},
		{Reduce{Fn: Mean, Axes: []int{1}}, []Type{f32(0, 3)}, []Type{f32(0)}},
		{Gather{}, []Type{f32(9, 3), i64(2, 2)}, []Type{f32(2, 2, 3)}},
		{ScatterAdd{9}, []Type{i32(), f32(3)}, []Type{f32(9, 3)}},
		{Concat{1}, []Type{i32(2, 3), i32(2, 0), i32(2, 4)}, []Type{i32(2, 7)}},
		{Pad{0, 1, 2}, []Type{i64(0)}, []Type{i64(3)}},
		{Transpose{}, []Type{f32()}, []Type{f32()}},
		{Cast{device.Int64}, []Type{f32(2)}, []Type{i64(2)}},
		{Update{Rule: SGD, Step: 1, Momentum: 0.9}, []Type{f32(2), f32(2), f32(2)}, []Type{f32(2), f32(2)}},
		{Update{Rule: Adam, Step: 1}, []Type{f32(2), f32(2), f32(2), f32(2)}, []Type{f32(2), f32(2), f32(2)}},
		{SumSquares{}, []Type{f32(2), f64()}, []Type{f64()}},
		{OnRows{Of: Update{Rule: SGD, Step: 1, Momentum: 1}}, []Type{f32(5, 2), f32(3, 2), f32(5, 2), i64(3)}, []Type{f32(5, 2), f32(5, 2)}},
		{Conv2d{Window{Kernel: [2]int{3, 5}, Stride: [2]int{2, 1}, Before: [2]int{1, 0}, After: [2]int{0, 2}, Dilation: [2]int{1, 2}}},
			[]Type{f32(2, 3, 8, 9), f32(4, 3, 3, 5)}, []Type{f32(2, 4, 4, 3)}},
		{Im2col{Window: Square(3, 1, 1)}, []Type{f64(2, 3, 8, 9)}, []Type{f64(2, 27, 72)}},
		{Im2col{Window: Square(3, 1, 1), Rows: true}, []Type{f64(2, 3, 8, 9)}, []Type{f64(2, 8, 9, 27)}},
		{MaxPool2d{Square(2, 2, 0)}, []Type{f32(2, 3, 7, 9)}, []Type{f32(2, 3, 3, 4)}},
		{MaxPool2d{Square(3, 1, 1)}, []Type{f32(2, 3, 7, 9)}, []Type{f32(2, 3, 7, 9)}},
		{MaxPool2d{Window{Kernel: [2]int{2, 2}, Dilation: [2]int{3, 3}, Before: [2]int{2, 2}}}, []Type{f32(2, 3, 7, 9)}, []Type{f32(2, 3, 6, 8)}},
		{Conv2d{Square(2, 2, 2)}, []Type{f32(2, 3, 8, 8), f32(4, 3, 2, 2)}, []Type{f32(2, 4, 6, 6)}},
	} {
		got, err := c.i.Infer(c.in)
		require.NoError(t, err, "%v", c.i)
		require.Len(t, got, len(c.want))
		for k := range got {
			require.True(t, got[k].Equal(c.want[k]), "%v: got %v, want %v", c.i, got[k], c.want[k])
		}
	}
}

func TestSettingsOfAnUpdateThatMakeNoSenseAreAllNamed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		i   Update
		why []string
	}{
		{sgd(Update{LR: -1, Momentum: -2, Dampening: nan, WeightDecay: inf}), []string{"learning rate -1", "momentum -2", "dampening NaN", "weight decay +Inf"}},
		{sgd(Update{LR: 1, Momentum: 1, Dampening: 1, Nesterov: true}), []string{"Nesterov needs a momentum and no dampening"}},
		{adam(Update{Beta1: 1, Beta2: 2, Eps: -1, Scale: inf}), []string{"beta1 1", "beta2 2", "eps -1", "scaled by +Inf"}},
		{Update{Rule: AdamW, Beta1: -0.1}, []string{"AdamW: beta1 -0.1"}},
		{Update{Rule: Adagrad, LRDecay: -1, Initial: -1}, []string{"learning rate decay -1", "initial accumulator -1"}},
		{Update{Rule: Adadelta, Beta2: 1}, []string{"rho 1"}},
		{Update{Rule: RMSprop, Beta2: 1, Momentum: -1}, []string{"alpha 1", "momentum -1"}},
		{Update{Rule: Rprop, EtaMinus: 1, EtaPlus: 0.5, MinStep: -1, MaxStep: -2}, []string{"eta minus 1", "eta plus 0.5", "smallest step -1", "largest step -2"}},
		{Update{Rule: Adamax, Beta1: 1}, []string{"Adamax: beta1 1"}},
	} {
		err := c.i.Check()
		for _, why := range c.why {
			require.ErrorContains(t, err, why)
		}
	}
	for _, rule := range updateRules() {
		require.NoError(t, Update{Rule: rule, EtaMinus: 0.5, EtaPlus: 1.2, MaxStep: 1}.Check())
	}
}

func sgd(i Update) Update  { i.Rule = SGD; return i }
func adam(i Update) Update { i.Rule = Adam; return i }

func TestStringTellsInstructionsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range []Instr{
		Unary{Fn: Exp}, Unary{Fn: Scale, C: 2}, Unary{Fn: Scale, C: 2.5}, Unary{Fn: Shift, C: 2}, Unary{Fn: 99},
		Binary{}, Binary{Fn: Mul}, Binary{Fn: 99}, MatMul{}, MatMul{TransA: true}, MatMul{TransB: true},
		Reduce{}, Reduce{Axes: []int{}}, Reduce{Axes: []int{0}}, Reduce{Axes: []int{0}, Keep: true}, Reduce{Fn: Max}, Reduce{Fn: 99},
		MaxGrad{}, MaxGrad{Keep: true}, MaxGrad{Axes: []int{0, 1}}, BroadcastTo{device.Shape{2}}, Reshape{device.Shape{2}},
		Transpose{[]int{0, 1}}, Transpose{[]int{1, 0}}, Slice{0, 1, 2}, Slice{0, 1, 3}, Slice{1, 1, 2}, Pad{0, 1, 2}, Pad{1, 1, 2},
		Concat{0}, Concat{1}, Gather{}, ScatterAdd{1}, ScatterAdd{2}, Softmax{}, Softmax{Log: true}, Softmax{Axis: 1},
		SoftmaxGrad{}, SoftmaxGrad{Log: true}, CrossEntropy{}, CrossEntropy{Classes: 1}, CrossEntropy{Rows: 2}, CrossEntropy{First: 1, Rows: 2}, CrossEntropyGrad{}, CrossEntropyGrad{Rows: 2}, Normalize{1}, Normalize{2}, NormalizeGrad{1}, LayerNorm{1}, LayerNorm{2}, LayerNormGrad{1}, NonFinite{},
		Cast{device.Int32}, Cast{device.Int64}, Fill{f32(2), 1}, Fill{f32(2), 2}, Fill{f64(2), 1},
		sgd(Update{}), sgd(Update{LR: 1}), sgd(Update{Momentum: 1}), sgd(Update{Dampening: 1}), sgd(Update{WeightDecay: 1}), sgd(Update{Nesterov: true}),
		sgd(Update{Scale: -1}), sgd(Update{Step: 1}), adam(Update{}), adam(Update{Beta1: 1}), adam(Update{Beta2: 1}), adam(Update{Eps: 1}),
		adam(Update{AMSGrad: true}), Update{Rule: AdamW}, Update{Rule: Adagrad}, Update{Rule: Adagrad, LRDecay: 1}, Update{Rule: Adagrad, Initial: 1},
		Update{Rule: Adadelta}, Update{Rule: RMSprop}, Update{Rule: RMSprop, Centered: true}, Update{Rule: Rprop}, Update{Rule: Rprop, EtaMinus: 1},
		Update{Rule: Rprop, EtaPlus: 1}, Update{Rule: Rprop, MinStep: 1}, Update{Rule: Rprop, MaxStep: 1}, Update{Rule: Adamax}, UpdateMany{Update{Rule: Adamax}}, UpdateMany{Update{Rule: Adam}}, SumSquares{},
		Im2col{}, Im2col{Rows: true}, Im2col{Window: Square(2, 1, 0)}, Im2col{Window: Square(2, 2, 0)}, Im2col{Window: Square(2, 1, 1)},
		Im2col{Window: Window{Before: [2]int{1, 2}}}, Im2col{Window: Window{After: [2]int{1, 2}}}, Im2col{Window: Window{Dilation: [2]int{2, 2}}},
		Col2im{}, Col2im{Channels: 1}, Col2im{Height: 1}, Col2im{Width: 1}, Conv2d{}, Conv2dGradW{}, Conv2dGradX{}, Conv2dGradX{Height: 1},
		Conv2dGradX{Width: 1}, MaxPool2d{}, MaxPool2dGrad{}, AvgPool2d{}, AvgPool2d{Inside: true}, AvgPool2dGrad{}, AvgPool2dGrad{Width: 1},
		Random{Type: f32(2)}, Random{Type: f32(3)}, Random{Type: f64(2)}, Random{Fn: Bernoulli, Type: f32(2)}, Random{Fn: Bernoulli, Type: f32(2), P: 1},
		Random{Fn: 99}, Dropout{}, Dropout{P: 1},
		Attention{}, Attention{Causal: true}, AttentionGrad{}, AttentionGrad{Causal: true}, AttentionGrad{Joined: true},
		Attention{Masked: true}, Attention{Drop: 0.1}, Attention{Drop: 0.2}, AttentionGrad{Masked: true}, AttentionGrad{Drop: 0.1},
		OnRows{}, OnRows{Of: sgd(Update{})}, OnRows{Of: sgd(Update{LR: 1})}, OnRows{Of: Binary{}},
	} {
		require.False(t, seen[i.String()], "%v twice", i)
		seen[i.String()] = true
	}
	require.Equal(t, "float32(2, 3)", f32(2, 3).String())
	require.Equal(t, 24, f32(2, 3).Bytes())
	require.Equal(t, 8, f64().Bytes())
}

func TestEveryElementwiseFunctionHasAWholeRow(t *testing.T) {
	for fn := range UnaryFn(UnaryFns) {
		require.NotEmpty(t, unaries[fn].name, "of unary function %d", fn)
		require.Positive(t, fn.Weight(), "of %v", fn)
	}
	for fn := range BinaryFn(BinaryFns) {
		require.NotEmpty(t, binaries[fn].name, "of binary function %d", fn)
		require.Positive(t, fn.Weight(), "of %v", fn)
	}
}
