package nn

import (
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/zero"
	"github.com/weft-project/weft/kernels"
)

// BatchNorm normalises each channel (axis 1), then scales by Gamma and shifts by Beta, all
// (channels). In training it normalises by mean and variance over the batch and all other axes, and
// moves RunningMean and RunningVar towards them, the variance unbiased, as PyTorch does; in
// evaluation it normalises by those. It serves images (n, channels, h, w) as well as rows (n,
// channels).
//
// Running statistics belong to nobody. A forward that a checkpoint computes anew does not move them
// again. Forwards at once move them one after the other, in any order.
type BatchNorm struct {
	Gamma, Beta             *autodiff.Tensor
	RunningMean, RunningVar *autodiff.Tensor // both nil: batches normalise themselves, also in evaluation
	Eps                     float64          // added to the variance; default 1e-5, and Zero for none
	Momentum                float64          // the share of a batch in the running statistics; default 0.1, and Zero leaves them as they are
	mode
}

// NewBatchNorm starts with Gamma 1 and Beta 0, a running mean of 0 and a running variance of 1.
func NewBatchNorm(channels int) *BatchNorm {
	return &BatchNorm{
		Gamma: Ones(device.Float32, channels).RequireGrad(), Beta: Zeros(device.Float32, channels).RequireGrad(),
		RunningMean: Zeros(device.Float32, channels), RunningVar: Ones(device.Float32, channels),
	}
}

// Forward normalises x (n, channels, …). Training needs more than one element in each channel.
func (l *BatchNorm) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	eps, running := zero.Or(l.Eps, 1e-5), l.RunningMean != nil
	if running != (l.RunningVar != nil) {
		return autodiff.Failed(fmt.Errorf("BatchNorm: %w: of RunningMean and RunningVar one is nil; set both, or neither", autodiff.ErrNil))
	}
	if !l.Training() && running {
		return autodiff.BatchNormWith(x, l.RunningMean, l.RunningVar, l.Gamma, l.Beta, eps)
	}
	y, mean, variance := autodiff.BatchNorm(x, l.Gamma, l.Beta, eps)
	if y.Err() != nil || !running {
		return y
	}
	if err := l.follow(x, mean, variance); err != nil {
		return autodiff.Failed(err)
	}
	return y
}

// follow moves the running statistics, once per forward.
func (l *BatchNorm) follow(x, mean, variance *autodiff.Tensor) error {
	n := x.Shape().Elems() / max(mean.Shape().Elems(), 1)
	if n < 2 {
		return fmt.Errorf("BatchNorm: %w: %v has %d elements in each channel; training needs two or more", kernels.ErrOperands, x.Type(), n)
	}
	first := false
	autodiff.Draw(x, func() uint64 { first = true; return 0 })
	if !first {
		return nil
	}
	if err := l.move(l.RunningMean, mean, 1); err != nil {
		return err
	}
	return l.move(l.RunningVar, variance, float64(n)/float64(n-1))
}

// move makes running (1−m)·running + m·scale·batch, which is a step of size m down the gradient
// running − scale·batch.
func (l *BatchNorm) move(running, batch *autodiff.Tensor, scale float64) error {
	step := kernels.Update{Rule: kernels.SGD, LR: zero.Or(l.Momentum, 0.1), WeightDecay: 1, Scale: -scale, Step: 1}
	return autodiff.Apply(step, []*autodiff.Tensor{running, batch}, 0)
}

// Params is Gamma and Beta.
func (l *BatchNorm) Params() []*autodiff.Tensor { return []*autodiff.Tensor{l.Gamma, l.Beta} }
