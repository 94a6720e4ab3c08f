package tensors

import (
	"context"
	"fmt"
	"math"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc"
)

// A function that is called in a pass is of that pass, as the caller is. There an operation is made
// of messages of the pass, one from each member to each other one, as calls are. What a member
// computes of what it gets is local mathematics.

// word is what a member tells another one of the message to it.
type word struct {
	_        struct{} `cbor:",toarray"`
	ID       uint64   // 0: there is none
	Requires bool
	Shape    device.Shape
	Origin   device.ID
	Past     ctx.Lineage
}

// everyone gets x.
func (o *operation) everyone(x *autodiff.Tensor) []*autodiff.Tensor {
	parts := make([]*autodiff.Tensor, o.g.Size())
	for r := range parts {
		parts[r] = x
	}
	return parts
}

// only one member gets x.
func (o *operation) only(rank int, x *autodiff.Tensor) []*autodiff.Tensor {
	parts := make([]*autodiff.Tensor, o.g.Size())
	parts[rank] = x
	return parts
}

// cut gives each member rows of x along an axis.
func (o *operation) cut(x *autodiff.Tensor, dim int, rows []int) []*autodiff.Tensor {
	parts := make([]*autodiff.Tensor, len(rows))
	at := 0
	for r, n := range rows {
		parts[r] = autodiff.Slice(x, dim, at, at+n)
		at += n
	}
	return parts
}

// traded is an operation whose members give each other parts, nil for none. then makes the result
// of those that are for this member, by rank.
func (o *operation) traded(parts []*autodiff.Tensor, then func(got []*autodiff.Tensor) *autodiff.Tensor) *autodiff.Tensor {
	got, err := o.trade(parts, true)
	if err != nil {
		return failed(o.name, err)
	}
	return then(got)
}

// trade gives each member a part, and gets those of all. Without values they come as zeros, all
// like x.
func (o *operation) trade(parts []*autodiff.Tensor, values bool) (got []*autodiff.Tensor, err error) {
	both, err := o.g.Compound(o.plain, o.what)
	if err != nil {
		return nil, err
	}
	words, err := o.give(parts)
	var theirs [][]word
	if err == nil {
		theirs, err = collective.Agree(both.Turn(o.plain, 0, "", ""), o.g, words)
	}
	mems := make([][]byte, len(parts))
	if err == nil && values {
		mems, err = o.swap(both.Turn(o.plain, 1, "", ""), parts)
	}
	got = make([]*autodiff.Tensor, len(parts))
	for r := 0; err == nil && r < len(parts); r++ {
		switch {
		case r == o.g.Rank():
			got[r] = parts[r]
		case len(theirs[r]) != len(parts):
			err = fmt.Errorf("%w: rank %d tells of %d messages", rpc.ErrProtocol, r, len(theirs[r]))
		case theirs[r][o.g.Rank()].ID != 0:
			got[r], err = o.attach(r, theirs[r][o.g.Rank()], mems[r], values)
		}
	}
	if ended := both.End(err); err == nil {
		err = ended
	}
	if err != nil {
		for _, w := range words {
			o.pass.DropSend(ctx.MessageID(w.ID))
		}
		return nil, err
	}
	return got, nil
}

// give attaches the send functions, and gives what is told of them.
func (o *operation) give(parts []*autodiff.Tensor) (words []word, err error) {
	words = make([]word, len(parts))
	for r, m := range o.g.Members() {
		x := parts[r]
		if x == nil || r == o.g.Rank() {
			continue
		}
		if err := x.Err(); err != nil {
			return words, err
		}
		id := o.pass.NextMessage()
		past, err := o.pass.AttachSend(id, ctx.WorkerID(m.WorkerRank), o.name, []*autodiff.Tensor{x})
		if err != nil {
			return words, err
		}
		words[r] = word{ID: uint64(id), Requires: x.RequiresGrad(), Shape: x.Shape(), Origin: x.Device(), Past: past}
	}
	return words, nil
}

// swap brings each member the value of its part.
func (o *operation) swap(c context.Context, parts []*autodiff.Tensor) ([][]byte, error) {
	mems := make([][]byte, len(parts))
	for r, x := range parts {
		if x == nil || r == o.g.Rank() {
			continue
		}
		b, err := x.Acquire()
		if err != nil {
			return nil, err
		}
		defer b.Release() //nolint:errcheck // ours
		if mems[r], err = onHost(b); err != nil {
			return nil, err
		}
	}
	return o.allToAll(c, o.g, mems)
}

// attach makes a tensor of what a member has given, with its recv function.
func (o *operation) attach(from int, w word, mem []byte, values bool) (t *autodiff.Tensor, err error) {
	if err := w.Shape.Check(); err != nil {
		return nil, fmt.Errorf("%w: rank %d: %w", rpc.ErrProtocol, from, err)
	}
	if !values {
		t, err = o.result(o.typ.Shape, func(to []byte) error { nought(o.typ.Dtype, to); return nil })
	} else if typ := (kernels.Type{Dtype: o.typ.Dtype, Shape: w.Shape}); typ.Bytes() != len(mem) {
		err = fmt.Errorf("%w: rank %d gives %d bytes of %v", rpc.ErrProtocol, from, len(mem), typ)
	} else {
		t, err = o.result(w.Shape, func(to []byte) error { copy(to, mem); return nil })
	}
	if err != nil {
		return nil, err
	}
	m := o.g.Members()[from]
	return t, o.pass.AttachRecv(ctx.MessageID(w.ID), ctx.WorkerID(m.WorkerRank), []*autodiff.Tensor{t}, []bool{w.Requires}, []device.ID{w.Origin}, w.Past)
}

// nought fills memory with −0, which changes nothing that it is added to.
func nought(d device.Dtype, mem []byte) {
	if d == device.Float64 {
		fill(device.As[float64](mem), math.Copysign(0, -1))
	} else {
		fill(device.As[float32](mem), float32(math.Copysign(0, -1)))
	}
}

func fill[T any](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}

// entered is Enter. Members give each other zeros whose gradients are x's, and nothing but what is
// told of them.
func (o *operation) entered() *autodiff.Tensor {
	y, err := o.result(o.typ.Shape, func(mem []byte) error { copy(mem, o.mem); return nil })
	var zero *autodiff.Tensor
	if err == nil {
		zero, err = o.result(o.typ.Shape, func(mem []byte) error { nought(o.typ.Dtype, mem); return nil })
	}
	if err != nil {
		return o.refuse(err)
	}
	autodiff.NewPassing(o.name, o.x, zero)
	got, err := o.trade(o.everyone(zero), false)
	if err != nil {
		return failed(o.name, err)
	}
	for _, z := range got {
		if z.RequiresGrad() {
			y = autodiff.Add(y, z)
		}
	}
	return y
}

// folded is what op makes of tensors, by operations that have gradients of their own. It has the
// bits that [collective.Op.Fold] gives.
func folded(op collective.Op, xs []*autodiff.Tensor) *autodiff.Tensor {
	s := xs[0].Shape()
	if op == collective.Min || op == collective.Max {
		rows := make([]*autodiff.Tensor, len(xs))
		for r, x := range xs {
			if rows[r] = autodiff.Reshape(x, 1, s.Elems()); op == collective.Min {
				rows[r] = autodiff.Neg(rows[r])
			}
		}
		y := autodiff.Reshape(autodiff.Max(autodiff.Concat(0, rows...), 0), s...)
		if op == collective.Min {
			y = autodiff.Neg(y)
		}
		return y
	}
	w, sums := op.Weight(len(xs))
	mean := op == collective.Mean
	var y *autodiff.Tensor
	for r, x := range xs {
		if sums && !mean && w != 1 {
			x = autodiff.Scale(x, w)
		}
		switch {
		case r == 0:
			y = x
		case op == collective.Prod:
			y = autodiff.Mul(y, x)
		default:
			y = autodiff.Add(y, x)
		}
	}
	if mean {
		y = autodiff.Div(y, autodiff.FullLike(y, float64(len(xs))))
	}
	return autodiff.Reshape(y, s...)
}
