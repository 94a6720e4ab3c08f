package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// ErrNorm says that the norm of the gradients is not a number or infinite. Nothing was stepped.
var ErrNorm = errors.New("the norm of the gradients is not finite")

// ClipFactor is what gradients of a norm must be multiplied by so that it is at most max:
// torch.nn.utils.clip_grad_norm_'s max/(norm + 1e-6), and at most 1. It fails with [ErrNorm], as
// torch does with error_if_nonfinite: such a gradient says nothing, and would spoil every
// parameter. Use it with StepScaled where the norm is that of several optimizers.
func ClipFactor(norm, max float64) (float64, error) {
	if !(max > 0) {
		return 0, fmt.Errorf("%w: gradients cannot be clipped to a norm of %g; expected a positive one", ErrRule, max)
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return 0, fmt.Errorf("%w: it is %g", ErrNorm, norm)
	}
	return min(1, max/(norm+1e-6)), nil
}

// GradNorm is the Euclidean norm of the gradients of all the optimizer's parameters together,
// computed in float64. It refuses what Step refuses, but that there are no gradients: their norm is
// 0.
func (o *Local) GradNorm(grads map[*autodiff.Tensor]*autodiff.Tensor) (float64, error) {
	sum, err := o.sumSquares(grads)
	return math.Sqrt(sum), located(err)
}

// StepClipped is Step with the gradients clipped so that their norm is at most max; see
// [ClipFactor]. It gives the norm that they had. The gradients themselves stay as they are.
func (o *Local) StepClipped(grads map[*autodiff.Tensor]*autodiff.Tensor, max float64) (norm float64, err error) {
	rate := o.LR()
	if norm, err = o.GradNorm(grads); err != nil {
		return norm, err
	}
	factor, err := ClipFactor(norm, max)
	if err != nil {
		return norm, located(err)
	}
	return norm, located(o.stepAll(grads, pace{rate, factor}))
}

// sumSquares adds up where the gradients are, and fetches one number from each device.
func (o *Local) sumSquares(grads map[*autodiff.Tensor]*autodiff.Tensor) (total float64, err error) {
	if err := o.serves(grads); err != nil {
		return 0, err
	}
	at := map[device.ID]*autodiff.Tensor{}
	var sums []*autodiff.Tensor
	for _, p := range o.params {
		g := grads[p.of]
		if g == nil {
			continue
		}
		g = squares(g)
		sum := at[g.Device()]
		if sum == nil {
			sum = onto(autodiff.Scalar(0.0), g)
			at[g.Device()], sums = sum, append(sums, sum)
		}
		if err := autodiff.Apply(kernels.SumSquares{}, []*autodiff.Tensor{g, sum}, 1); err != nil {
			return 0, fmt.Errorf("norm of the gradient of %v: %w", p, err)
		}
	}
	for _, sum := range sums {
		v, err := sum.Item()
		if err != nil {
			return 0, err
		}
		total += v
	}
	return total, nil
}

// onto is x on the device of like.
func onto(x, like *autodiff.Tensor) *autodiff.Tensor {
	buf, err := like.Acquire()
	if err != nil {
		return autodiff.Failed(err)
	}
	defer buf.Release() //nolint:errcheck // ours
	return autodiff.To(x, buf.Device())
}
