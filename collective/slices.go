package collective

import (
	"context"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// Element is what arrays are of.
type Element = device.Number

// AllReduce replaces x, of one length on all members, by what op makes of all members' elements.
// Where it fails x is as it was.
func AllReduce[E Element](c context.Context, g *Group, x []E, op Op) error {
	return reduce(c, g, plan.AllReduce, x, op, 0)
}

// Reduce does that on the root alone.
func Reduce[E Element](c context.Context, g *Group, x []E, op Op, root int) error {
	return reduce(c, g, plan.Reduce, x, op, root)
}

func reduce[E Element](c context.Context, g *Group, kind plan.Kind, x []E, op Op, root int) error {
	call, err := calls[E](c, g, kind, op, len(x), root)
	if err != nil {
		return err
	}
	mem := device.Bytes(x)
	cut := func(i int) (int, int) { return bounds(len(mem), g.Size(), i) }
	return g.cutUp(c, call, mem, cut, func(parts []part) error {
		if len(parts) > 0 {
			g.copyOut(mem, parts)
		}
		return nil
	})
}

// ReduceScatter gives each member its share of what op makes of all members' elements of x, which
// has one length on all. [Share] says which.
func ReduceScatter[E Element](c context.Context, g *Group, x []E, op Op) (share []E, err error) {
	return shareOf(c, g, plan.ReduceScatter, x, op, 0)
}

// shareOf runs an operation that gives each member its share.
func shareOf[E Element](c context.Context, g *Group, kind plan.Kind, x []E, op Op, root int) (share []E, err error) {
	call, err := calls[E](c, g, kind, op, len(x), root)
	if err != nil {
		return nil, err
	}
	err = g.cutUp(c, call, device.Bytes(x), g.shares(len(x), device.DtypeOf[E]()), func(parts []part) error {
		share = append([]E{}, device.As[E](parts[0].mem)...) // which is not made zero first
		g.moved.Add(2 * int64(len(parts[0].mem)))
		return nil
	})
	return share, err
}

// Share is where the share of a rank begins and ends in n elements: as even as can be, the first
// ones larger. Where there is no such rank, as in a group of size 0, or nothing to share, it is
// empty: both are 0.
func Share(n, size, rank int) (lo, hi int) {
	if n < 0 || rank < 0 || rank >= size {
		return 0, 0
	}
	each, more := n/size, n%size
	at := func(r int) int { return r*each + min(r, more) }
	return at(rank), at(rank + 1)
}

func (g *Group) shares(n int, d device.Dtype) func(i int) (lo, hi int) {
	return func(i int) (int, int) {
		lo, hi := Share(n, g.Size(), i)
		return lo * d.Size(), hi * d.Size()
	}
}

// Broadcast replaces x, of one length on all members, by the root's.
func Broadcast[E Element](c context.Context, g *Group, x []E, root int) error {
	call, err := calls[E](c, g, plan.Broadcast, Op{}, len(x), root)
	if err != nil {
		return err
	}
	mem := device.Bytes(x)
	cut := func(i int) (int, int) { return bounds(len(mem), g.Size(), i) }
	return g.cutUp(c, call, mem, cut, func(parts []part) error {
		if g.rank != root {
			g.copyOut(mem, parts)
		}
		return nil
	})
}

// Scatter gives each member its share of the root's x, of one length on all members.
func Scatter[E Element](c context.Context, g *Group, x []E, root int) (share []E, err error) {
	return shareOf(c, g, plan.Scatter, x, Op{}, root)
}

// AllGather gives every member the arrays of all, by rank. Their lengths may differ.
func AllGather[E Element](c context.Context, g *Group, x []E) ([][]E, error) {
	return gather(c, g, plan.AllGather, x, 0)
}

// Gather gives the root the arrays of all, by rank, and the others nothing. Their lengths may
// differ.
func Gather[E Element](c context.Context, g *Group, x []E, root int) ([][]E, error) {
	return gather(c, g, plan.Gather, x, root)
}

func gather[E Element](c context.Context, g *Group, kind plan.Kind, x []E, root int) (all [][]E, err error) {
	call, err := calls[E](c, g, kind, Op{}, -1, root)
	if err != nil {
		return nil, err
	}
	err = g.bring(c, call, map[int][]byte{g.rank: device.Bytes(x)}, func(parts []part) error { return copies(&all, parts) })
	return all, err
}

// AllToAll gives member r what all have in x[r], by rank. Lengths may differ.
func AllToAll[E Element](c context.Context, g *Group, x [][]E) (all [][]E, err error) {
	if g != nil && len(x) != g.Size() {
		return nil, g.refuse(c, plan.AllToAll, fmt.Errorf("%w: arrays for %d members; the group has %d", ErrArguments, len(x), g.Size()))
	}
	call, err := calls[E](c, g, plan.AllToAll, Op{}, -1, 0)
	if err != nil {
		return nil, err
	}
	in := map[int][]byte{}
	for r, x := range x {
		in[r] = device.Bytes(x)
	}
	err = g.bring(c, call, in, func(parts []part) error { return copies(&all, parts) })
	return all, err
}

// Barrier waits until all members have come to it.
func (g *Group) Barrier(c context.Context) error {
	call, err := g.call(c, plan.Barrier, Op{}, device.Invalid, -1, 0)
	if err != nil {
		return err
	}
	return g.bring(c, call, map[int][]byte{g.rank: nil}, func([]part) error { return nil })
}

// calls describes a call, and checks what it is given.
func calls[E Element](c context.Context, g *Group, kind plan.Kind, op Op, n, root int) (desk.Call, error) {
	return g.call(c, kind, op, device.DtypeOf[E](), n, root)
}

func (g *Group) call(c context.Context, kind plan.Kind, op Op, d device.Dtype, n, root int) (desk.Call, error) {
	if err := there(g); err != nil {
		return desk.Call{}, fmt.Errorf("collective: %v: %w", kind, err)
	}
	if err := g.whole(c); err != nil {
		return desk.Call{}, fmt.Errorf("collective: %v in group %q: %w", kind, g.name, err)
	}
	if kind.Sums() {
		if err := fold.Check(op.of, d); err != nil {
			return desk.Call{}, g.refuse(c, kind, err)
		}
	}
	return desk.Call{Kind: kind, Algorithm: g.pick(c, kind, max(n, 0)*d.Size()), Op: op.of, Dtype: d, Count: n, Root: root}, nil
}

// copyOut puts parts one behind the other.
func (g *Group) copyOut(to []byte, parts []part) {
	for _, p := range parts {
		if len(p.mem) > 0 && &to[0] != &p.mem[0] {
			copy(to, p.mem)
			g.moved.Add(2 * int64(len(p.mem)))
		}
		to = to[len(p.mem):]
	}
}

// copies makes arrays of parts.
func copies[E Element](all *[][]E, parts []part) error {
	width := device.DtypeOf[E]().Size()
	for r, p := range parts {
		if len(p.mem)%width != 0 {
			return fmt.Errorf("%w: rank %d brought %d bytes; expected elements of %d", ErrMismatch, r, len(p.mem), width)
		}
		*all = append(*all, append([]E{}, device.As[E](p.mem)...)) // which is not made zero first
	}
	return nil
}

// Agree gives every member the values of all, by rank. Values are small; they travel as the
// arguments of a call do, without tensors.
func Agree[T any](c context.Context, g *Group, value T) ([]T, error) {
	raw, err := cbor.Marshal(value)
	if err != nil {
		return nil, g.refuse(c, plan.AllGather, fmt.Errorf("%w: a value to agree on: %w", ErrArguments, err))
	}
	call, err := g.call(c, plan.AllGather, Op{}, device.Invalid, -1, 0)
	if err != nil {
		return nil, err
	}
	all := make([]T, g.Size())
	err = g.bring(c, call, map[int][]byte{g.rank: raw}, func(parts []part) error {
		for r, p := range parts {
			if err := decoding().Unmarshal(p.mem, &all[r]); err != nil {
				return fmt.Errorf("%w: the value of rank %d, %s: %w", rpc.ErrProtocol, r, g.members[r].Worker, err)
			}
		}
		return nil
	})
	return all, err
}

// Op makes one element of those of all members, in the order of ranks.
type Op struct{ of fold.Op }

// The operations. And, Or and Xor are for integers, Mean and Scaled for floats. Mean divides the
// sum, once. Min and Max are NaN where an element is.
var (
	Sum  = Op{fold.Op{Fn: fold.Sum}}
	Mean = Op{fold.Op{Fn: fold.Mean}}
	Prod = Op{fold.Op{Fn: fold.Prod}}
	Min  = Op{fold.Op{Fn: fold.Min}}
	Max  = Op{fold.Op{Fn: fold.Max}}
	And  = Op{fold.Op{Fn: fold.And}}
	Or   = Op{fold.Op{Fn: fold.Or}}
	Xor  = Op{fold.Op{Fn: fold.Xor}}
)

// Scaled is the sum of f times each element.
func Scaled(f float64) Op { return Op{fold.Op{Fn: fold.Scaled, Factor: f}} }

func (o Op) String() string { return o.of.String() }

// Weight is w where the operation adds up w times the element of each of so many members. ok is
// false where it is no such sum.
func (o Op) Weight(members int) (w float64, ok bool) {
	switch o.of.Fn {
	case fold.Sum:
		return 1, true
	case fold.Mean:
		return 1 / float64(members), true
	case fold.Scaled:
		return o.of.Factor, true
	}
	return 0, false
}

// Check says what is wrong with the operation on elements of a dtype.
func (o Op) Check(d device.Dtype) error { return fold.Check(o.of, d) }

// Fold makes one array of those of all members, in the order of ranks, as the operations of a group
// do. All have as many bytes as dst, which may be the first of them and shares no memory with the
// others. Check has found nothing wrong.
func (o Op) Fold(d device.Dtype, dst []byte, from ...[]byte) { fold.Into(dst, o.of, d, from...) }

// Code is the operation in numbers, which do not change, for who computes it elsewhere: those of
// Sum, Mean, Prod, Min, Max, And, Or, Xor and Scaled are 1 to 9, and factor is Scaled's.
func (o Op) Code() (fn uint8, factor float64) { return uint8(o.of.Fn), o.of.Factor }
