package measure

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

// floats is a tensor of float32.
func floats(shape ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: shape} }

// buffers is some buffers of a device.
type buffers []*device.Buffer

func (b buffers) release() (err error) {
	for _, x := range b {
		err = errors.Join(err, x.Release())
	}
	return err
}

// filled gives buffers for tensors of floats, with noise in [0, 1) that the device makes of a seed:
// of constants a GPU moves more in a second, as it takes less power. Tensors of int64 are labels.
func filled(dev device.Device, of ...kernels.Type) (all buffers, err error) {
	be, err := backend.For(dev)
	if err != nil {
		return nil, err
	}
	keyType := kernels.Type{Dtype: device.Int64, Shape: device.Shape{2}}
	key, err := dev.Alloc(keyType.Bytes())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, key.Release()) }()
	for k, t := range of {
		x, err := dev.Alloc(t.Bytes())
		if err != nil {
			return nil, errors.Join(err, all.release())
		}
		all = append(all, x)
		if t.Dtype == device.Int64 {
			if err := dev.Upload(x, 0, device.Bytes(labelled(t.Shape.Elems(), classes))); err != nil {
				return nil, errors.Join(err, all.release())
			}
			continue
		}
		const seed = 9
		err = dev.Upload(key, 0, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seed), uint64(k)))
		if err != nil {
			return nil, errors.Join(err, all.release())
		}
		fill, err := be.Prepare(kernels.Random{Type: t}, []kernels.Type{keyType})
		if err == nil {
			err = fill.Run([]*device.Buffer{x}, []*device.Buffer{key})
		}
		if err != nil {
			return nil, errors.Join(err, all.release())
		}
	}
	return all, nil
}

// noisy gives buffers for tensors of floats of so many bytes each, from ±0.5 to ±1. A GPU
// multiplies numbers of which many bits are equal with less power, and so faster: products are
// timed with these.
func noisy(dev device.Device, size int, of ...kernels.Type) (all buffers, err error) {
	src := source(8)
	for _, t := range of {
		raw := make([]byte, t.Shape.Elems()*size)
		for at := 0; at+size <= len(raw); at += size {
			if size == 2 {
				binary.LittleEndian.PutUint16(raw[at:], uint16(src.Uint32())&0x807f|126<<7)
			} else {
				binary.LittleEndian.PutUint32(raw[at:], src.Uint32()&0x807fffff|126<<23)
			}
		}
		x, err := dev.Alloc(max(len(raw), 1))
		if err == nil {
			all = append(all, x)
			err = dev.Upload(x, 0, raw)
		}
		if err != nil {
			return nil, errors.Join(err, all.release())
		}
	}
	return all, nil
}

// copy measures the bandwidth that all else is held to.
func (b *bench) copy(context.Context) error {
	return b.report(line{Case: "copy"}, func(l *line) error {
		return b.on(gpu.Float32, func(dev *device.Accelerator, t *clock) error {
			all, err := filled(dev, floats(b.bytes/4), floats(b.bytes/4))
			if err != nil {
				return err
			}
			l.MS, err = t.median(1, func() error { return device.Copy(all[1], all[0]) })
			l.GBps = 2 * float64(b.bytes) / l.MS / 1e6
			b.copied = l.GBps
			return errors.Join(err, all.release())
		})
	})
}

// classes is how many columns the logits of a cross-entropy have.
const classes = 8192

// bound measures kernels that memory limits.
func (b *bench) bound(c context.Context) (err error) {
	if b.copied == 0 {
		err = b.copy(c)
	}
	n := b.bytes / 4
	flat, rows, row := floats(n), floats(n/1024, 1024), floats(1024)
	logits, after := floats(n/classes, classes), kernels.Type{Dtype: device.Int64, Shape: device.Shape{n / classes}}
	adamw := kernels.Update{Rule: kernels.AdamW, LR: 1e-3, WeightDecay: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1}
	for _, k := range []struct {
		name   string
		instr  kernels.Instr
		in     []kernels.Type
		over   []int   // the operand that each result lies over; nil: results have memory of their own
		passes float64 // over b.bytes, reading and writing
	}{
		{"exp", kernels.Unary{Fn: kernels.Exp}, []kernels.Type{flat}, nil, 2},
		{"add", kernels.Binary{Fn: kernels.Add}, []kernels.Type{flat, flat}, []int{1}, 3},
		{"sum", kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}, []kernels.Type{flat}, nil, 1},
		{"softmax", kernels.Softmax{Axis: 1}, []kernels.Type{rows}, nil, 2},
		{"layernorm", kernels.LayerNorm{Eps: 1e-5}, []kernels.Type{rows, row, row}, nil, 2},
		{"crossentropy", kernels.CrossEntropy{}, []kernels.Type{logits, after}, nil, 1},
		{"adamw", adamw, []kernels.Type{flat, flat, flat, flat}, []int{0, 2, 3}, 7},
	} {
		e := b.report(line{Case: "bound", Op: k.name}, func(l *line) error {
			return b.on(gpu.Float32, func(dev *device.Accelerator, t *clock) error {
				ins, err := filled(dev, k.in...)
				if err != nil {
					return err
				}
				l.MS, err = repeated(dev, t, k.instr, k.in, ins, k.over)
				l.GBps = k.passes * float64(b.bytes) / l.MS / 1e6
				l.OfCopy = l.GBps / b.copied
				return err
			})
		})
		err = errors.Join(err, e)
	}
	return err
}

// repeated is how long an instruction takes, on operands that it releases. Results lie over the
// operands that over names, or in memory of their own.
func repeated(dev *device.Accelerator, t *clock, i kernels.Instr, in []kernels.Type, ins buffers, over []int) (ms float64, err error) {
	defer func() { err = errors.Join(err, ins.release()) }()
	be, err := backend.For(dev)
	if err != nil {
		return 0, err
	}
	out, err := i.Infer(in)
	if err != nil {
		return 0, err
	}
	k, err := be.Prepare(i, in)
	if err != nil {
		return 0, err
	}
	var outs buffers
	if over == nil {
		if outs, err = filled(dev, out...); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, outs.release()) }()
	}
	for _, m := range over {
		outs = append(outs, ins[m])
	}
	return t.median(1, func() error { return k.Run(outs, ins) })
}
