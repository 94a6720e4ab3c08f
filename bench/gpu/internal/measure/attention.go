package measure

import (
	"context"
	"errors"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

// attention measures a layer of GPT's attention alone, and its gradient, all of bfloat16.
func (b *bench) attention(context.Context) error {
	return errors.Join(
		b.report(line{Case: "attention", Op: "forward"}, func(l *line) error { return b.attended(l, false) }),
		b.report(line{Case: "attention", Op: "backward"}, func(l *line) error { return b.attended(l, true) }),
	)
}

// attended measures the forward, or the backward of what it gives. Both compute what is seen alone:
// half of two products, and of five.
func (b *bench) attended(l *line, backward bool) error {
	s := b.gptSize
	tokens := kernels.Type{Dtype: device.BFloat16, Shape: device.Shape{s.batch, s.length, s.heads, s.width / s.heads}}
	sums := floats(s.batch, s.heads, s.length)
	products := 2.0
	if backward {
		products = 5
	}
	return b.on(gpu.BF16, func(dev *device.Accelerator, t *clock) (err error) {
		wide := floats(tokens.Shape...)
		ins, err := noisy(dev, 2, wide, wide, wide, wide) // q, k, v and the gradient of y
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ins.release()) }()
		outs, err := noisy(dev, 2, wide, wide, wide) // y, or the gradients
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, outs.release()) }()
		logs, err := dev.Alloc(sums.Bytes())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, logs.Release()) }()
		be, err := backend.For(dev)
		if err != nil {
			return err
		}
		forward, err := be.Prepare(kernels.Narrow{Of: kernels.Attention{Causal: true}, Outs: []bool{true}}, []kernels.Type{tokens, tokens, tokens})
		if err != nil {
			return err
		}
		run := func() error { return forward.Run(buffers{outs[0], logs}, ins[:3]) }
		if backward {
			y, err := dev.Alloc(tokens.Bytes())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, y.Release()) }()
			if err := forward.Run(buffers{y, logs}, ins[:3]); err != nil {
				return err
			}
			grad, err := be.Prepare(kernels.Narrow{Of: kernels.AttentionGrad{Causal: true}, Outs: []bool{true, true, true}},
				[]kernels.Type{tokens, tokens, tokens, tokens, sums, tokens})
			if err != nil {
				return err
			}
			run = func() error { return grad.Run(outs[:3], buffers{ins[0], ins[1], ins[2], y, logs, ins[3]}) }
		}
		l.MS, err = t.median(1, run)
		l.TFlops = products * float64(s.batch*s.length*s.length*s.width) / l.MS / 1e9
		return err
	})
}
