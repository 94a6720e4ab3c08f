package payload

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// Outgoing puts tensors into a message, each with the device it is to land on. The message holds a
// reference to every buffer: call m.Release afterwards. nil tensors travel as absent ones.
func Outgoing(m *transport.Message, tensors []*autodiff.Tensor, target func(i int) (device.ID, error)) error {
	for i, t := range tensors {
		if t == nil {
			m.Tensors = append(m.Tensors, transport.Tensor{})
			continue
		}
		to, err := target(i)
		if err == nil {
			var buf *device.Buffer
			if buf, err = t.Acquire(); err == nil {
				m.Tensors = append(m.Tensors, transport.Tensor{Dtype: t.Dtype(), Shape: t.Type().Shape, Device: to, Buf: buf})
			}
		}
		if err != nil {
			m.Release()
			return fmt.Errorf("tensor %d (%v): %w", i, t, err)
		}
	}
	return nil
}

// Computed waits until a result is, and says what went wrong with that. Once the answer is under
// way its receiver would only hear that it broke off.
func Computed(ts []transport.Tensor) error {
	on := map[*device.Accelerator][]*device.Buffer{}
	for _, t := range ts {
		if t.Buf == nil {
			continue
		}
		if d, ok := t.Buf.Device().(*device.Accelerator); ok {
			on[d] = append(on[d], t.Buf)
		}
	}
	for d, bufs := range on {
		if err := d.Check(bufs...); err != nil {
			return err
		}
	}
	return nil
}

// Infos describes tensors in a header.
func Infos(tensors []*autodiff.Tensor) []wire.TensorInfo {
	if len(tensors) == 0 {
		return nil
	}
	out := make([]wire.TensorInfo, len(tensors))
	for i, t := range tensors {
		out[i] = wire.TensorInfo{Requires: t.RequiresGrad(), Origin: t.Device()}
	}
	return out
}

// Incoming makes tensors of a message's, owned by the pass (nil: nobody). It takes over the
// message's buffers.
func Incoming(m *transport.Message, p *ctx.Pass) []*autodiff.Tensor {
	var owner *autodiff.Arena
	if p != nil {
		owner = p.Arena()
	}
	out := make([]*autodiff.Tensor, len(m.Tensors))
	for i, t := range m.Tensors {
		if t.Buf != nil {
			out[i] = autodiff.Wrap(typeOf(t), t.Buf, owner)
		}
	}
	m.Tensors = nil
	return out
}

func typeOf(t transport.Tensor) kernels.Type {
	return kernels.Type{Dtype: t.Dtype, Shape: t.Shape}
}

// AttachRecv makes the recv function of tensors that arrived in a pass.
func AttachRecv(p *ctx.Pass, info *wire.PassInfo, from int, tensors []*autodiff.Tensor) error {
	if p == nil || info == nil {
		return nil
	}
	if info.NoGrad {
		p.NoteRecv(ctx.MessageID(info.Message), ctx.WorkerID(from), slices.DeleteFunc(slices.Clone(tensors), func(t *autodiff.Tensor) bool { return t == nil }))
		return nil
	}
	if len(info.Tensors) != len(tensors) {
		return fmt.Errorf("%w: %d descriptions for %d tensors", wire.ErrProtocol, len(info.Tensors), len(tensors))
	}
	requires, origins := make([]bool, len(tensors)), make([]device.ID, len(tensors))
	for i, t := range info.Tensors {
		requires[i], origins[i] = t.Requires, t.Origin
		if tensors[i] == nil {
			return fmt.Errorf("%w: tensor %d is absent", wire.ErrProtocol, i)
		}
		if t.Requires && !tensors[i].Dtype().IsFloat() {
			return fmt.Errorf("%w: tensor %d is %v and cannot require a gradient", wire.ErrProtocol, i, tensors[i].Dtype())
		}
	}
	return p.AttachRecv(ctx.MessageID(info.Message), ctx.WorkerID(from), tensors, requires, origins, info.Past)
}
