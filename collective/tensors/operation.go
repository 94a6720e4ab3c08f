package tensors

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// operation is one that this member is in.
type operation struct {
	arrays
	c     context.Context // under which it calls the group
	g     *collective.Group
	name  string
	x     *autodiff.Tensor
	typ   kernels.Type // of x
	buf   *device.Buffer
	mem   []byte // x's value, to be read
	pass  *ctx.Pass
	saves bool // it is recorded in the pass
	owner *autodiff.Arena
	key   string

	called bool            // it is recorded as messages of the pass; then:
	plain  context.Context // as the user gave it
	what   string          // describes it
}

// begin takes the value of x. shape is how x is described to the others: what may differ in it is
// −1. Where it fails the others are told. Whoever gets an operation calls giveBack.
func begin(c context.Context, g *collective.Group, name string, x *autodiff.Tensor, shape func(s device.Shape) (device.Shape, error)) (*operation, error) {
	if g == nil {
		return nil, errNoGroup
	}
	o := &operation{g: g, name: name, x: x}
	if err := o.open(c, shape); err != nil {
		g.Abandon(c, fmt.Errorf("%s: %w", name, err))
		return nil, err
	}
	return o, nil
}

var errNoGroup = fmt.Errorf("%w: no group", collective.ErrArguments)

func (o *operation) open(c context.Context, shape func(s device.Shape) (device.Shape, error)) (err error) {
	if err := o.x.Err(); err != nil {
		return err
	}
	o.typ, o.owner = o.x.Type(), o.x.Owner()
	o.arrays = arraysOf(o.typ.Dtype)
	like, err := shape(o.typ.Shape)
	if err != nil {
		return err
	}
	if pass, ok := ctx.From(c); ok {
		o.pass, o.owner = pass, pass.Arena()
		if err := pass.Arena().Accepts(o.name, o.x); err != nil {
			return err
		}
		o.saves = ctx.Recording(c) && o.typ.Dtype.IsFloat()
		o.called = o.saves && ctx.Called(c)
	}
	o.plain, o.what = c, described(o.name, o.typ.Dtype, like, o.saves)
	if o.called {
		o.what = fmt.Sprintf("%s that is called, %v", o.what, o.pass.ID())
	}
	o.c = collective.Describe(c, o.what, func(key string) {
		if o.key == "" {
			o.key = o.g.Name() + " " + key
		}
	})
	if o.buf, err = o.x.Acquire(); err != nil {
		return err
	}
	if o.mem, err = onHost(o.buf); err != nil {
		o.giveBack()
	}
	return err
}

// described is what all members must call alike.
func described(name string, d device.Dtype, s device.Shape, saves bool) string {
	if saves {
		return fmt.Sprintf("tensors.%s of %v%v in a pass", name, d, s)
	}
	return fmt.Sprintf("tensors.%s of %v%v", name, d, s)
}

// giveBack gives the value back.
func (o *operation) giveBack() { _ = o.buf.Release() } // ours

// onHost is what a buffer holds, to be read.
func onHost(b *device.Buffer) ([]byte, error) {
	if b.Device() == device.Device(device.Host()) {
		return b.Host()
	}
	mem := make([]byte, b.Len())
	return mem, b.Device().Download(mem, b, 0)
}

// room is a new buffer on the host.
func room(n int) (*device.Buffer, []byte, error) {
	b, err := device.Host().Alloc(n)
	if err != nil {
		return nil, nil, err
	}
	mem, err := b.Host()
	return b, mem, err
}

// moved is a buffer of the host's on a device. It takes the reference over.
func moved(b *device.Buffer, to device.Device) (*device.Buffer, error) {
	if to == device.Device(device.Host()) {
		return b, nil
	}
	defer b.Release() //nolint:errcheck // ours
	there, err := to.Alloc(b.Len())
	if err != nil {
		return nil, err
	}
	if err := device.Copy(there, b); err != nil {
		_ = there.Release() // ours alone
		return nil, err
	}
	return there, nil
}

// result makes a tensor like x of another shape, where x lies. fill writes its value.
func (o *operation) result(s device.Shape, fill func(mem []byte) error) (*autodiff.Tensor, error) {
	t := kernels.Type{Dtype: o.typ.Dtype, Shape: s}
	b, mem, err := room(t.Bytes())
	if err != nil {
		return nil, err
	}
	if err := fill(mem); err != nil {
		_ = b.Release() // ours alone
		return nil, err
	}
	return o.tensor(s, b)
}

// tensor is one like x of another shape, where x lies, of its value. It takes the reference over.
func (o *operation) tensor(s device.Shape, b *device.Buffer) (*autodiff.Tensor, error) {
	b, err := moved(b, o.buf.Device())
	if err != nil {
		return nil, err
	}
	y := autodiff.Wrap(kernels.Type{Dtype: o.typ.Dtype, Shape: s}, b, o.owner)
	return y, y.Err()
}

// sum is AllReduce of x.
func (o *operation) sum(op collective.Op) (*autodiff.Tensor, error) {
	b, err := o.g.AllReduced(o.c, op, o.typ.Dtype, o.buf)
	if err != nil {
		return nil, err
	}
	return o.tensor(o.typ.Shape, b)
}

// pull computes the gradient of x from those of the results, which are zeros where there are none.
// It may write to gys. It is nil where there is none on this member.
type pull func(c context.Context, gys [][]byte) (gx []byte, err error)

// record puts the operation on the tape.
func (o *operation) record(do pull, results ...*autodiff.Tensor) error {
	inputs := []*autodiff.Tensor{o.x}
	switch {
	case o.saves:
	case o.pass == nil && o.x.RequiresGrad():
		autodiff.NewShared(o.name, inputs, results, ctx.ErrShared)
		return nil
	default:
		return nil
	}
	types := make([]kernels.Type, len(results))
	for i, y := range results {
		types[i] = y.Type()
	}
	dev, typ, wanted := o.buf.Device(), o.typ, o.x.RequiresGrad()
	return o.pass.Share(&ctx.Shared{
		Group: meeting{o.g}, Key: o.key, Name: o.name,
		Pull: func(c context.Context, grads []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
			gys, err := values(grads, types)
			if err != nil {
				return nil, err
			}
			gx, err := do(c, gys)
			if err != nil {
				return nil, lost(err)
			}
			if gx == nil || !wanted {
				return []*autodiff.Tensor{nil}, nil
			}
			g, err := gradient(gx, typ, dev)
			return []*autodiff.Tensor{g}, err
		},
	}, inputs, results)
}

// values are copies of gradients on the host.
func values(grads []*autodiff.Tensor, types []kernels.Type) ([][]byte, error) {
	all := make([][]byte, len(types))
	for i, t := range types {
		all[i] = make([]byte, t.Bytes())
		if grads[i] == nil {
			continue
		}
		b, err := grads[i].Acquire()
		if err == nil {
			err = b.Device().Download(all[i], b, 0)
			_ = b.Release() // ours
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func gradient(mem []byte, t kernels.Type, dev device.Device) (*autodiff.Tensor, error) {
	b, err := dev.Alloc(len(mem))
	if err != nil {
		return nil, err
	}
	if err := dev.Upload(b, 0, mem); err != nil {
		_ = b.Release() // ours alone
		return nil, err
	}
	return autodiff.Transient(t, b), nil
}

// lost names the member whose loss has ended a part of a pass.
func lost(err error) error {
	var gone *collective.LostError
	if errors.As(err, &gone) {
		return &ctx.EndError{By: gone.Worker, Err: fmt.Errorf("%w: %w", ctx.ErrPeerLost, err)}
	}
	return err
}

// failed is the result of an operation that failed.
func failed(name string, err error) *autodiff.Tensor {
	return autodiff.Failed(fmt.Errorf("%s: %w", name, err))
}

// fail is the result of an operation that failed here, which the others are told if it has not
// begun.
func (o *operation) refuse(err error) *autodiff.Tensor {
	if o.key == "" {
		o.g.Abandon(o.c, fmt.Errorf("%s: %w", o.name, err))
	}
	return failed(o.name, err)
}

// one is an operation with one result of a shape.
func (o *operation) one(s device.Shape, fill func(mem []byte) error, do pull) *autodiff.Tensor {
	y, err := o.result(s, fill)
	return o.recorded(y, err, do)
}

// recorded is a result with its gradient.
func (o *operation) recorded(y *autodiff.Tensor, err error, do pull) *autodiff.Tensor {
	if err == nil {
		err = o.record(do, y)
	}
	if err != nil {
		return o.refuse(err)
	}
	return y
}

// same describes tensors that have one shape on all members.
func same(s device.Shape) (device.Shape, error) { return s, nil }

// alongIn describes tensors whose sizes along an axis may differ. It makes dim the axis, from 0.
func alongIn(dim *int, differ bool) func(s device.Shape) (device.Shape, error) {
	return func(s device.Shape) (device.Shape, error) {
		at := *dim
		if at < 0 {
			at += len(s)
		}
		if at < 0 || at >= len(s) {
			return nil, fmt.Errorf("%w: axis %d of %v", device.ErrBadShape, *dim, s)
		}
		*dim = at
		s = s.Clone()
		if differ {
			s[at] = -1
		}
		return s, nil
	}
}

// rooted checks a root before an operation that has none of its own.
func rooted(g *collective.Group, root int, then func(s device.Shape) (device.Shape, error)) func(s device.Shape) (device.Shape, error) {
	return func(s device.Shape) (device.Shape, error) {
		if root < 0 || root >= g.Size() {
			return nil, fmt.Errorf("%w: root %d; the group has ranks 0 to %d", collective.ErrArguments, root, g.Size()-1)
		}
		return then(s)
	}
}
