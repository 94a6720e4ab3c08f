package autodiff

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// To copies a tensor to another device; it is x itself where it lies there already. Gradients are copied back.
func To(x *Tensor, dev device.Device) *Tensor {
	if err := x.Err(); err != nil {
		return failed(err)
	}
	if dev == nil {
		return failed(opError("To", fmt.Errorf("%w: the device is nil", device.ErrNoDevice)))
	}
	if x.dev == dev {
		return x
	}
	y, err := x.copyTo(dev)
	if err != nil {
		return failed(opError("To", err))
	}
	t := newTensor(x.typ, y, x.owner)
	if t.err != nil || !x.requiresGrad {
		return t
	}
	home := x.dev
	at := siteOutside()
	n := &Node{name: "to " + dev.ID().String(), at: &at, outs: []kernels.Type{x.typ}, next: []Edge{x.edge}}
	n.pull = func(gys []*Tensor) ([]*Tensor, error) {
		if gys[0] == nil {
			return []*Tensor{nil}, nil
		}
		b, err := gys[0].copyTo(home)
		if err != nil {
			return nil, err
		}
		return []*Tensor{manual(gys[0].typ, b)}, nil
	}
	t.requiresGrad, t.edge = true, Edge{Node: n}
	return t
}

// copyTo copies the value into a new buffer, of which the caller owns the reference.
func (t *Tensor) copyTo(dev device.Device) (*device.Buffer, error) {
	src, err := t.acquire()
	if err != nil {
		return nil, err
	}
	defer src.Release() //nolint:errcheck // ours
	dst, err := dev.Alloc(src.Len())
	if err != nil {
		return nil, err
	}
	if err := device.Copy(dst, src); err != nil {
		_ = dst.Release() // ours alone
		return nil, err
	}
	return dst, nil
}
