package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// CrossEntropy is the mean over rows of −log softmax(logits)[label]: logits (n, classes), labels
// (n) int32 or int64.
func CrossEntropy(logits, labels *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.CrossEntropy(logits, labels)
}

// MSE is the mean squared difference of two tensors of one shape. Shapes that would only broadcast
// are refused: a (n) target for a (n, 1) prediction is a mistake.
func MSE(prediction, target *autodiff.Tensor) *autodiff.Tensor {
	if prediction.Err() == nil && target.Err() == nil && !prediction.Type().Equal(target.Type()) {
		return autodiff.Failed(fmt.Errorf("MSE: %w: prediction %v and target %v must be of one type",
			kernels.ErrOperands, prediction.Type(), target.Type()))
	}
	return mse.Call(prediction, target)
}

var mse = autodiff.Define("mse", func(g *autodiff.Graph, p, t *gorgonia.Node) *gorgonia.Node {
	d := g.Sub(p, t)
	return g.Mean(g.Mul(d, d))
})

// Accuracy is the share of rows whose largest logit stands at the label: logits (n, classes),
// labels (n) int32 or int64, each a class.
func Accuracy(logits, labels *autodiff.Tensor) (float64, error) {
	l, lt := logits.Type().Shape, labels.Type().Shape
	for i, t := range []*autodiff.Tensor{logits, labels} {
		if t == nil {
			return 0, autodiff.Failed(fmt.Errorf("Accuracy: operand %d is %w", i, autodiff.ErrNil)).Err()
		}
		if err := t.Err(); err != nil {
			return 0, err
		}
	}
	if len(l) != 2 || l[0] == 0 || l[1] == 0 || !lt.Equal(l[:1]) || !logits.Dtype().IsFloat() || labels.Dtype().IsFloat() {
		return 0, autodiff.Failed(fmt.Errorf("Accuracy: %w: expected float logits (n, classes) with n and classes > 0 and integer labels (n), got %v and %v",
			kernels.ErrOperands, logits.Type(), labels.Type())).Err()
	}
	want, err := values(labels)
	if err != nil {
		return 0, err
	}
	have, err := values(logits)
	if err != nil {
		return 0, err
	}
	right := 0
	for i, label := range want {
		if label < 0 || label >= float64(l[1]) {
			bad := &kernels.IndexError{Instr: "Accuracy", ID: int64(label), At: i, N: l[1]}
			return 0, autodiff.Failed(bad).Err()
		}
		row := have[i*l[1] : (i+1)*l[1]]
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		if float64(best) == label {
			right++
		}
	}
	return float64(right) / float64(l[0]), nil
}

// values reads a tensor of any dtype.
func values(t *autodiff.Tensor) ([]float64, error) {
	switch t.Dtype() {
	case device.Float64:
		return autodiff.Values[float64](t)
	case device.Float32:
		return widened[float32](t)
	case device.Int32:
		return widened[int32](t)
	}
	return widened[int64](t)
}

func widened[T device.Number](t *autodiff.Tensor) ([]float64, error) {
	v, err := autodiff.Values[T](t)
	wide := make([]float64, len(v))
	for i, x := range v {
		wide[i] = float64(x)
	}
	return wide, err
}
