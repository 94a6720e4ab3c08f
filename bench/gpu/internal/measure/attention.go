package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

// attention measures a layer of GPT's attention alone, and its gradient, all of bfloat16; and with
// half as many heads, which are twice as wide.
func (b *bench) attention(context.Context) error {
	narrow, wide := b.gptSize.heads, b.gptSize.heads/2
	return errors.Join(
		b.report(line{Case: "attention", Op: "forward"}, func(l *line) error { return b.attended(l, narrow, false) }),
		b.report(line{Case: "attention", Op: "backward"}, func(l *line) error { return b.attended(l, narrow, true) }),
		b.report(line{Case: "attention", Op: "forward of wide heads"}, func(l *line) error { return b.attended(l, wide, false) }),
		b.attendedByHopper("forward", narrow), // last: a kernel that faults takes its device with it
		b.attendedByHopper("forward of wide heads", wide),
	)
}

// hopperArch is the compute capability, times ten, that has wgmma.
const hopperArch = 90

// attendedByHopper measures the forward by wgmma, which programs have to ask for, and compares what
// it makes with what they get otherwise. Of other GPUs it says nothing.
func (b *bench) attendedByHopper(op string, heads int) error {
	d, err := b.open()
	if err != nil {
		return err
	}
	arch := d.Info().Arch
	if err := d.Close(); err != nil || arch != hopperArch {
		return err
	}
	return b.report(line{Case: "attention", Op: op, Mode: "wgmma"}, func(l *line) error {
		want, err := b.attention1(heads)
		if err != nil {
			return err
		}
		b.hopper = true
		defer func() { b.hopper = false }()
		got, err := b.attention1(heads)
		if err != nil {
			return err
		}
		return errors.Join(l.near(got, want), b.attended(l, heads, false))
	})
}

// near compares results of bfloat16, which two kernels rounded, as they did the weights.
func (l *line) near(got, want []byte) error {
	const most = 2e-2
	number := func(b []byte) float64 {
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	}
	off := 0.0
	for k := 0; k < len(want); k += 2 {
		off = max(off, finite(math.Abs(number(got[k:])-number(want[k:]))))
	}
	if l.Off, l.OffAllowed = &off, most; off > most {
		return fmt.Errorf("results are %g off from those of other kernels; %g is allowed", off, most)
	}
	return nil
}

// tokens are the heads of a layer.
func (b *bench) tokens(heads int) kernels.Type {
	s := b.gptSize
	return kernels.Type{Dtype: device.BFloat16, Shape: device.Shape{s.batch, s.length, heads, s.width / heads}}
}

// attention1 is what the forward makes.
func (b *bench) attention1(heads int) (raw []byte, err error) {
	raw = make([]byte, b.tokens(heads).Bytes())
	return raw, b.on(gpu.BF16, func(dev *device.Accelerator, _ *clock) error {
		a, err := newAttending(dev, b.tokens(heads))
		if err != nil {
			return err
		}
		return errors.Join(a.forward(), dev.Download(raw, a.y, 0), b.byHopper(dev), a.all.release())
	})
}

// byHopper says where attention is not by wgmma that was to be.
func (b *bench) byHopper(dev *device.Accelerator) error {
	if !b.hopper {
		return nil
	}
	why := errors.New("nobody counted attention")
	for _, w := range backend.Ways(dev) {
		switch {
		case w.Work == "bfloat16 attention" && w.By == "wgmma":
			return nil
		case w.Work == "bfloat16 attention":
			why = fmt.Errorf("attention is by %s, as %s: %s", w.By, w.Why, w.Last)
		}
	}
	return why
}

// attended measures the forward, or the backward of what it gives. Both compute what is seen alone:
// half of two products, and of five.
func (b *bench) attended(l *line, heads int, backward bool) error {
	s, products := b.gptSize, 2.0
	if backward {
		products = 5
	}
	return b.on(gpu.BF16, func(dev *device.Accelerator, t *clock) error {
		a, err := newAttending(dev, b.tokens(heads))
		if err != nil {
			return err
		}
		run := a.forward
		if err = a.forward(); backward {
			run = a.backward
		}
		if err == nil {
			l.MS, err = t.median(1, run)
		}
		l.TFlops = products * float64(s.batch*s.length*s.length*s.width) / l.MS / 1e9
		return errors.Join(err, a.all.release())
	})
}

// attending is attention and its gradient over noise, on a device.
type attending struct {
	forward, backward func() error
	y                 *device.Buffer
	all               buffers
}

func newAttending(dev *device.Accelerator, tokens kernels.Type) (a *attending, err error) {
	wide, sums := floats(tokens.Shape...), floats(tokens.Shape[0], tokens.Shape[2], tokens.Shape[1])
	a = new(attending)
	defer func() {
		if err != nil {
			err = errors.Join(err, a.all.release())
		}
	}()
	if a.all, err = noisy(dev, 2, wide, wide, wide, wide, wide, wide, wide, wide); err != nil { // q, k, v and the gradient of y; y, and the gradients
		return nil, err
	}
	logs, err := dev.Alloc(sums.Bytes())
	if err != nil {
		return nil, err
	}
	in, y, grads := a.all[:4], a.all[4], a.all[5:8]
	a.y, a.all = y, append(a.all, logs)
	be, err := backend.For(dev)
	if err != nil {
		return nil, err
	}
	forward, err := be.Prepare(kernels.Narrow{Of: kernels.Attention{Causal: true}, Outs: []bool{true}}, []kernels.Type{tokens, tokens, tokens})
	if err != nil {
		return nil, err
	}
	grad, err := be.Prepare(kernels.Narrow{Of: kernels.AttentionGrad{Causal: true}, Outs: []bool{true, true, true}},
		[]kernels.Type{tokens, tokens, tokens, tokens, sums, tokens})
	if err != nil {
		return nil, err
	}
	a.forward = func() error { return forward.Run(buffers{y, logs}, in[:3]) }
	a.backward = func() error { return grad.Run(grads, buffers{in[0], in[1], in[2], y, logs, in[3]}) }
	return a, nil
}
