package autodiff

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// To copies a tensor to another device; it is x itself where it lies there already. Gradients are
// copied back.
func To(x *Tensor, dev device.Device) *Tensor {
	if err := x.Err(); err != nil {
		return failed(opError("To", err))
	}
	if err := device.Given(dev); err != nil {
		return failed(opError("To", err))
	}
	if x.dev == dev {
		return x
	}
	t, err := x.copyTo(dev)
	if err != nil {
		return failed(opError("To", err))
	}
	if t = t.owned("To", x.owner); t.err != nil || !x.requiresGrad {
		return t
	}
	home := x.dev
	at := siteOutside()
	n := &Node{at: &at, of: x.owner, rare: &rare{name: "to " + dev.ID().String(), outs: []kernels.Type{*x.typ}, next: []Edge{x.edge}}}
	n.rare.pull = func(gys []*Tensor, _ Pull) ([]*Tensor, error) {
		if gys[0] == nil {
			return []*Tensor{nil}, nil
		}
		g, err := gys[0].copyTo(home)
		return []*Tensor{g}, err
	}
	t.requiresGrad, t.edge = true, Edge{Node: n}
	return t
}

// copyTo is a transient with the same value on another device; sparse where t is.
func (t *Tensor) copyTo(dev device.Device) (*Tensor, error) {
	if t.sparse {
		return t.copyRowsTo(dev)
	}
	src, err := t.acquire()
	if err != nil {
		return nil, err
	}
	defer src.Release() //nolint:errcheck // ours
	dst, err := copyOf(src, dev)
	if err != nil {
		return nil, err
	}
	return manual(*t.typ, dst), nil
}

func (t *Tensor) copyRowsTo(dev device.Device) (*Tensor, error) {
	r, err := t.acquireRows()
	if err != nil {
		return nil, err
	}
	defer r.release()
	ids, err := copyOf(r.ids, dev)
	if err != nil {
		return nil, err
	}
	values, err := copyOf(r.values, dev)
	if err != nil {
		_ = ids.Release() // ours alone
		return nil, err
	}
	return sparse(*t.typ, &rows{ids, values, r.n, r.distinct}), nil
}

func copyOf(src *device.Buffer, dev device.Device) (*device.Buffer, error) {
	alloc := dev.Alloc
	if a, ok := dev.(*device.Accelerator); ok { // other memory may wait for what another pass still does with it
		alloc = func(n int) (*device.Buffer, error) { return a.AllocFor(n, device.ForUpload{}) }
	}
	dst, err := alloc(src.Len())
	if err != nil {
		return nil, err
	}
	if err := device.Copy(dst, src); err != nil {
		_ = dst.Release() // ours alone
		return nil, err
	}
	return dst, nil
}
