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
	// Total makes of a sum over this worker's batch that over the batches of all workers which
	// normalise together, as tensors.AllReduce does in a pass; all of them call Forward then. Nil:
	// each worker's batch is normalised alone. Statistics are the same on all.
	Total func(sum *autodiff.Tensor) *autodiff.Tensor
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
	if l.Total != nil {
		return l.together(x, eps)
	}
	y, mean, variance := autodiff.BatchNorm(x, l.Gamma, l.Beta, eps)
	if y.Err() != nil || !running {
		return y
	}
	if err := l.follow(x, mean, variance, x.Shape().Elems()/max(mean.Shape().Elems(), 1)); err != nil {
		return autodiff.Failed(err)
	}
	return y
}

// together normalises by mean and variance over the batches of all workers. The variance is made of
// distances from the mean, as that of one batch is, so that nothing cancels out.
func (l *BatchNorm) together(x *autodiff.Tensor, eps float64) *autodiff.Tensor {
	shape := x.Shape()
	if len(shape) < 2 || shape[1] == 0 {
		return autodiff.Failed(fmt.Errorf("BatchNorm: %w: %v has no channels (axis 1)", kernels.ErrOperands, x.Type()))
	}
	channels, over, per := shape[1], []int{0}, []int{-1}
	for a := 2; a < len(shape); a++ {
		over, per = append(over, a), append(per, 1)
	}
	sum := autodiff.Sum(x, over...)
	own := autodiff.FullLike(autodiff.Slice(sum, 0, 0, 1), float64(shape.Elems()/channels))
	all := l.Total(autodiff.Concat(0, sum, own.Detach()))
	count := autodiff.Slice(all, 0, channels, channels+1).Detach()
	mean := autodiff.Div(autodiff.Slice(all, 0, 0, channels), count)
	d := autodiff.Sub(x, autodiff.Reshape(mean, per...))
	variance := autodiff.Div(l.Total(autodiff.Sum(autodiff.Mul(d, d), over...)), count)
	y := autodiff.BatchNormWith(x, mean, variance, l.Gamma, l.Beta, eps)
	if y.Err() != nil || l.RunningMean == nil {
		return y
	}
	n, err := count.Item()
	if err == nil {
		err = l.follow(x, mean.Detach(), variance.Detach(), int(n))
	}
	if err != nil {
		return autodiff.Failed(err)
	}
	return y
}

// follow moves the running statistics, once per forward, by those of n elements in each channel.
func (l *BatchNorm) follow(x, mean, variance *autodiff.Tensor, n int) error {
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
