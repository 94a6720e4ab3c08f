package payload

import (
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// OutgoingGradients puts gradients into a message as outgoing does, sparse ones coalesced and as
// their parts.
func OutgoingGradients(m *transport.Message, grads []*autodiff.Tensor, targets []device.ID) ([]wire.SparseInfo, error) {
	var info []wire.SparseInfo
	var mine, parts []*autodiff.Tensor
	var to []device.ID
	defer func() { autodiff.Release(mine...) }()
	for i, g := range grads {
		if !g.IsSparse() {
			parts, to = append(parts, g), append(to, targets[i])
			continue
		}
		c := g.Coalesce()
		if c != g {
			mine = append(mine, c)
		}
		if err := c.Err(); err != nil {
			return nil, fmt.Errorf("gradient %d (%v): %w", i, g, err)
		}
		ids, values, _ := c.Rows()
		mine = append(mine, ids, values)
		parts, to = append(parts, ids, values), append(to, targets[i], targets[i])
		info = append(info, wire.SparseInfo{At: i, Extent: g.Type().Shape[0]})
	}
	return info, Outgoing(m, parts, func(i int) (device.ID, error) { return to[i], nil })
}

// IncomingGradients makes gradients of a message's tensors; the receiver must release them. It
// takes over what it used of the message's buffers. Indices are known to lie within their gradient
// afterwards; what type it has is for the receiver to check.
func IncomingGradients(m *transport.Message, info []wire.SparseInfo) (grads []*autodiff.Tensor, err error) {
	tensors := m.Tensors
	for len(tensors) > 0 {
		t := &tensors[0]
		var g *autodiff.Tensor
		switch {
		case len(info) > 0 && info[0].At == len(grads):
			if len(tensors) < 2 || t.Buf == nil || tensors[1].Buf == nil {
				autodiff.Release(grads...)
				return nil, fmt.Errorf("%w: gradient %d is sparse and lacks its parts", wire.ErrProtocol, info[0].At)
			}
			g, err = autodiff.TransientSparse(info[0].Extent, typeOf(*t), t.Buf, typeOf(tensors[1]), tensors[1].Buf)
			t.Buf, tensors[1].Buf = nil, nil
			info, tensors = info[1:], tensors[1:]
		case t.Buf != nil:
			g, t.Buf = autodiff.Transient(typeOf(*t), t.Buf), nil
		}
		if err != nil {
			autodiff.Release(grads...)
			return nil, fmt.Errorf("%w: gradient %d: %w", wire.ErrProtocol, len(grads), err)
		}
		grads, tensors = append(grads, g), tensors[1:]
	}
	if len(info) > 0 {
		autodiff.Release(grads...)
		return nil, fmt.Errorf("%w: gradient %d is said to be sparse, of %d", wire.ErrProtocol, info[0].At, len(grads))
	}
	m.Tensors = nil
	return grads, nil
}
