package tensors

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
)

// AllReduce is what op makes of the x of all members, of one shape, element by element. And, Or and
// Xor have no gradients.
func AllReduce(c context.Context, g *collective.Group, x *autodiff.Tensor, op collective.Op) *autodiff.Tensor {
	name := fmt.Sprintf("AllReduce %v", op)
	if g != nil && composed(c, x, op) {
		return inTwo(c, g, name, x, op, func(c context.Context, part *autodiff.Tensor) *autodiff.Tensor { return AllGather(c, g, part, 0) })
	}
	o, err := begin(c, g, name, x, checked(x, op, same))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	if o.called {
		return o.traded(o.everyone(x), func(got []*autodiff.Tensor) *autodiff.Tensor { return folded(op, got) })
	}
	all := o.arrays
	y, err := o.sum(op)
	return o.recorded(y, err, func(c context.Context, gys [][]byte) ([]byte, error) {
		return gys[0], all.allReduce(c, g, gys[0], op)
	})
}

// Reduce is that on the root alone; on the others it is nil.
func Reduce(c context.Context, g *collective.Group, x *autodiff.Tensor, op collective.Op, root int) *autodiff.Tensor {
	name := fmt.Sprintf("Reduce %v to rank %d", op, root)
	if g != nil && composed(c, x, op) && root >= 0 && root < g.Size() {
		return inTwo(c, g, name, x, op, func(c context.Context, part *autodiff.Tensor) *autodiff.Tensor { return Gather(c, g, part, 0, root) })
	}
	o, err := begin(c, g, name, x, rooted(g, root, checked(x, op, same)))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	if o.called {
		return o.traded(o.only(root, x), func(got []*autodiff.Tensor) *autodiff.Tensor {
			if g.Rank() != root {
				return nil
			}
			return folded(op, got)
		})
	}
	all, n, d := o.arrays, len(o.mem), o.typ.Dtype
	fill := func(mem []byte) error {
		copy(mem, o.mem)
		return all.reduce(o.c, g, mem, op, root)
	}
	do := func(c context.Context, gys [][]byte) ([]byte, error) {
		gx := make([]byte, n)
		if g.Rank() == root {
			gx = gys[0]
		}
		if err := all.broadcast(c, g, gx, root); err != nil {
			return nil, err
		}
		weigh(d, gx, op, g.Size())
		return gx, nil
	}
	if g.Rank() == root {
		return o.one(o.typ.Shape, fill, do)
	}
	return o.none(fill, do)
}

// none is an operation without a result on this member.
func (o *operation) none(fill func(mem []byte) error, do pull) *autodiff.Tensor {
	err := fill(make([]byte, len(o.mem)))
	if err == nil {
		err = o.record(do)
	}
	if err != nil {
		return o.refuse(err)
	}
	return nil
}

// Broadcast is the root's x on all members. The others' x says of which type and where it is to be;
// its value does not count.
func Broadcast(c context.Context, g *collective.Group, x *autodiff.Tensor, root int) *autodiff.Tensor {
	name := fmt.Sprintf("Broadcast from rank %d", root)
	o, err := begin(c, g, name, x, rooted(g, root, same))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	if o.called {
		parts := make([]*autodiff.Tensor, g.Size())
		if g.Rank() == root {
			parts = o.everyone(autodiff.Reshape(x, o.typ.Shape...))
		}
		return o.traded(parts, func(got []*autodiff.Tensor) *autodiff.Tensor { return got[root] })
	}
	all := o.arrays
	return o.one(o.typ.Shape, func(mem []byte) error {
		copy(mem, o.mem)
		return all.broadcast(o.c, g, mem, root)
	}, func(c context.Context, gys [][]byte) ([]byte, error) {
		err := all.reduce(c, g, gys[0], collective.Sum, root)
		if g.Rank() != root {
			return nil, err
		}
		return gys[0], err
	})
}

// Enter is x. Its gradient is the sum of those of all members. It begins a part of a model whose
// weights are spread over the members and whose input all have, as Megatron's f does; [Leave] ends
// it.
func Enter(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
	const name = "Enter"
	if g == nil {
		return failed(name, errNoGroup)
	}
	o := &operation{g: g, name: name, x: x, key: g.Name() + " " + g.Mark(c)} // there is nothing that others could wait for
	if err := o.open(c, same); err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	if o.called {
		return o.entered()
	}
	all := o.arrays
	return o.one(o.typ.Shape, func(mem []byte) error {
		copy(mem, o.mem)
		return nil
	}, func(c context.Context, gys [][]byte) ([]byte, error) {
		return gys[0], all.allReduce(c, g, gys[0], collective.Sum)
	})
}

// Leave is the sum of the x of all members. Its gradient is x's as it comes: all members go on with
// the same, and what they compute counts once.
func Leave(c context.Context, g *collective.Group, x *autodiff.Tensor) *autodiff.Tensor {
	const name = "Leave"
	o, err := begin(c, g, name, x, checked(x, collective.Sum, same))
	if err != nil {
		return failed(name, err)
	}
	defer o.giveBack()
	y, err := o.sum(collective.Sum)
	if err != nil {
		return o.refuse(err)
	}
	if o.saves || o.pass == nil {
		autodiff.NewPassing(name, o.x, y)
	}
	return y
}

// inTwo is an operation on all elements in two steps: each member gets its share of the result, and
// last brings the shares together.
func inTwo(c context.Context, g *collective.Group, name string, x *autodiff.Tensor, op collective.Op, last func(c context.Context, part *autodiff.Tensor) *autodiff.Tensor) *autodiff.Tensor {
	if err := x.Err(); err != nil {
		g.Abandon(c, fmt.Errorf("%s: %w", name, err))
		return failed(name, err)
	}
	t := x.Type()
	both, err := g.Compound(c, described(name, t.Dtype, t.Shape, true))
	if err != nil {
		return failed(name, err)
	}
	y := ReduceScatter(both.Turn(c, 0, "", ""), g, autodiff.Reshape(x, t.Shape.Elems()), 0, op)
	if y.Err() == nil {
		if y = last(both.Turn(c, 1, "", ""), y); y != nil {
			y = autodiff.Reshape(y, t.Shape...)
		}
	}
	if y != nil {
		err = y.Err()
	}
	if ended := both.End(err); err == nil && ended != nil {
		return failed(name, ended)
	}
	return y
}

// composed says that an operation is recorded whose gradient is no sum of gradients: it is made of
// others.
func composed(c context.Context, x *autodiff.Tensor, op collective.Op) bool {
	return (op == collective.Prod || op == collective.Min || op == collective.Max) && records(c, x) && !ctx.Called(c)
}

// checked checks an operation on x before what else is checked.
func checked(x *autodiff.Tensor, op collective.Op, then func(s device.Shape) (device.Shape, error)) func(s device.Shape) (device.Shape, error) {
	return func(s device.Shape) (device.Shape, error) {
		if err := op.Check(x.Dtype()); err != nil {
			return nil, err
		}
		return then(s)
	}
}

// weigh multiplies a gradient by the weight that each element has in the sum op.
func weigh(d device.Dtype, mem []byte, op collective.Op, members int) {
	w, _ := op.Weight(members)
	if w == 1 {
		return
	}
	if d == device.Float64 {
		scale(device.As[float64](mem), w)
	} else {
		scale(device.As[float32](mem), w)
	}
}

func scale[T float32 | float64](x []T, w float64) {
	for i := range x {
		x[i] = T(float64(x[i]) * w)
	}
}
