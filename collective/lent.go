package collective

import (
	"context"
	"fmt"
	"math"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
)

// What is here gives new buffers, which the caller owns. The members read each other's buffers
// where they lie, also after an operation has returned: they must not change as long as somebody
// else has a reference to them (Buffer.Exclusive). Results may be parts of other members' buffers,
// and are [device.Buffer.ReadOnly] then.

// AllReduced gives what op makes of the elements of all members' buffers, which have one size on
// all: a new buffer, which the caller owns, of the host's, or, where a [Way] made it, beside x. The
// members read x, of elements of d, where it lies, also after this returns: it must not change as
// long as somebody else has a reference to it. Large results on the host are mapped from the
// members that made their pieces, and [device.Buffer.ReadOnly]; then p members together read each
// array once, and write one.
func (g *Group) AllReduced(c context.Context, op Op, d device.Dtype, x *device.Buffer) (*device.Buffer, error) {
	if err := suits(d, x); err != nil {
		return nil, g.refuse(c, plan.AllReduce, err)
	}
	call, err := g.call(c, plan.AllReduce, op, d, x.Len()/d.Size(), 0)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	offered := g.offered
	g.mu.Unlock()
	if !offered {
		return g.reducedOnHost(c, call, x)
	}
	if !x.TryRetain() {
		return nil, g.refuse(c, plan.AllReduce, errReleased)
	}
	defer drop(part{buf: x})
	return g.reducedThere(c, call, op, x)
}

// reducedOnHost is AllReduced with a result of the host's.
func (g *Group) reducedOnHost(c context.Context, call desk.Call, x *device.Buffer) (*device.Buffer, error) {
	in, err := g.lent(c, plan.AllReduce, call.Dtype, x)
	if err != nil {
		return nil, err
	}
	defer drop(in)
	cut := func(i int) (lo, hi int) { return bounds(len(in.mem), g.Size(), i) }
	r := g.cutRun(call, in, cut)
	var all *device.Buffer
	if call.Algorithm == plan.Spread {
		var to []byte
		if all, err = device.Host().Alloc(len(in.mem)); err == nil {
			to, err = all.Host()
		}
		if err != nil {
			return nil, g.refuse(c, plan.AllReduce, err)
		}
		r.into = func(piece int) []byte {
			lo, hi := cut(piece)
			return to[lo:hi]
		}
	}
	err = g.do(c, r, func(parts []part) (err error) {
		if all == nil {
			all, err = g.joined(parts)
		}
		return err
	})
	if err != nil && all != nil {
		_ = all.Release() // ours
		all = nil
	}
	return all, err
}

// ReduceScattered gives each member its [Share] of what op makes of the elements of all members'
// buffers, which have one size on all: on the host, as AllReduced does.
func (g *Group) ReduceScattered(c context.Context, op Op, d device.Dtype, x *device.Buffer) (share *device.Buffer, err error) {
	in, err := g.lent(c, plan.ReduceScatter, d, x)
	if err != nil {
		return nil, err
	}
	defer drop(in)
	n := x.Len() / d.Size()
	call, err := g.call(c, plan.ReduceScatter, op, d, n, 0)
	if err != nil {
		return nil, err
	}
	err = g.do(c, g.cutRun(call, in, g.shares(n, d)), func(parts []part) (err error) {
		share, err = g.taken(parts[0])
		return err
	})
	return share, err
}

// AllGathered gives every member the buffers of all, by rank, on the host. Their sizes may differ.
// [device.Join] makes one of them.
func (g *Group) AllGathered(c context.Context, d device.Dtype, x *device.Buffer) ([]*device.Buffer, error) {
	if err := there(g); err != nil {
		return nil, fmt.Errorf("collective: AllGather: %w", err)
	}
	in, err := g.lent(c, plan.AllGather, d, x)
	if err != nil {
		return nil, err
	}
	defer drop(in)
	return g.exchange(c, plan.AllGather, d, map[plan.Slot]part{plan.Raw(g.rank, g.rank): in})
}

// Exchanged gives member r what all have in x[r], by rank, on the host: an AllToAll. Sizes may
// differ.
func (g *Group) Exchanged(c context.Context, d device.Dtype, x []*device.Buffer) ([]*device.Buffer, error) {
	if err := there(g); err != nil {
		return nil, fmt.Errorf("collective: AllToAll: %w", err)
	}
	if len(x) != g.Size() {
		return nil, g.refuse(c, plan.AllToAll, fmt.Errorf("%w: buffers for %d members; the group has %d", ErrArguments, len(x), g.Size()))
	}
	in := map[plan.Slot]part{}
	for r := range x {
		p, err := g.lent(c, plan.AllToAll, d, x[r])
		if err != nil {
			return nil, err
		}
		defer drop(p)
		in[plan.Raw(g.rank, r)] = p
	}
	return g.exchange(c, plan.AllToAll, d, in)
}

// exchange runs an operation whose results are others' parts as they are.
func (g *Group) exchange(c context.Context, kind plan.Kind, d device.Dtype, in map[plan.Slot]part) (all []*device.Buffer, err error) {
	call, err := g.call(c, kind, Op{}, d, -1, 0)
	if err != nil {
		return nil, err
	}
	r := &run{record: record{call: call}, has: in, size: func(plan.Slot) int { return -1 }}
	err = g.do(c, r, func(parts []part) error {
		for r, p := range parts {
			if len(p.mem)%d.Size() != 0 {
				return fmt.Errorf("%w: rank %d brought %d bytes; expected elements of %d", ErrMismatch, r, len(p.mem), d.Size())
			}
			b, err := g.taken(p)
			if err != nil {
				return err
			}
			all = append(all, b)
		}
		return nil
	})
	if err != nil {
		for _, b := range all {
			_ = b.Release() // ours
		}
		return nil, err
	}
	return all, nil
}

// Broadcasted gives all members the root's buffer of n elements, on the host. The others give nil.
func (g *Group) Broadcasted(c context.Context, d device.Dtype, n int, x *device.Buffer, root int) (all *device.Buffer, err error) {
	if err := there(g); err != nil {
		return nil, fmt.Errorf("collective: Broadcast: %w", err)
	}
	var in part
	if g.rank == root {
		if in, err = g.lent(c, plan.Broadcast, d, x); err != nil {
			return nil, err
		}
		defer drop(in)
		if len(in.mem) != n*d.Size() {
			return nil, g.refuse(c, plan.Broadcast, fmt.Errorf("%w: a buffer of %d bytes; expected %d elements of %v", ErrArguments, len(in.mem), n, d))
		}
	}
	if n < 0 || n > math.MaxInt/max(d.Size(), 1) {
		return nil, g.refuse(c, plan.Broadcast, fmt.Errorf("%w: %d elements of %v", ErrArguments, n, d))
	}
	call, err := g.call(c, plan.Broadcast, Op{}, d, n, root)
	if err != nil {
		return nil, err
	}
	r := g.cutRun(call, in, func(i int) (lo, hi int) { return bounds(n*d.Size(), g.Size(), i) })
	err = g.do(c, r, func(parts []part) (err error) {
		all, err = g.joined(parts)
		return err
	})
	return all, err
}

// suits says why x is no buffer of such elements.
func suits(d device.Dtype, x *device.Buffer) error {
	switch {
	case x == nil:
		return fmt.Errorf("%w: no buffer", ErrArguments)
	case d.Size() == 0 || x.Len()%d.Size() != 0:
		return fmt.Errorf("%w: %d bytes; expected elements of %v", ErrArguments, x.Len(), d)
	}
	return nil
}

// lent is a buffer's bytes, to be read where they lie, or a copy on the host. Whoever gets one
// drops it.
func (g *Group) lent(c context.Context, kind plan.Kind, d device.Dtype, x *device.Buffer) (part, error) {
	err := suits(d, x)
	var buf *device.Buffer
	if err == nil {
		buf, err = onHost(x)
	}
	if err != nil {
		return part{}, g.refuse(c, kind, err)
	}
	mem, err := buf.Host()
	if err != nil {
		_ = buf.Release() // ours
		return part{}, g.refuse(c, kind, err)
	}
	return part{mem: mem[:x.Len()], buf: buf}, nil
}

// taken is a part of a result as a buffer of its own.
func (g *Group) taken(p part) (*device.Buffer, error) {
	if p.buf != nil && p.off == 0 && len(p.mem) == p.buf.Len() {
		return p.buf.Retain(), nil
	}
	if p.buf != nil && len(p.mem) > 0 {
		return viewOf(p), nil
	}
	return g.joined([]part{{mem: p.mem}})
}

// adjoining is parts that lie one behind the other in one buffer, as one.
func adjoining(parts []part) (whole part, ok bool) {
	for _, p := range parts {
		switch {
		case len(p.mem) == 0:
			continue
		case p.buf == nil: // it came in a message's header
			return part{}, false
		case whole.buf == nil:
			whole = p
			continue
		case p.buf != whole.buf || p.off != whole.off+len(whole.mem):
			return part{}, false
		}
		mem, err := p.buf.Host()
		if err != nil {
			return part{}, false
		}
		whole.mem = mem[whole.off : p.off+len(p.mem)]
	}
	return whole, whole.buf != nil
}

var errReleased = fmt.Errorf("%w: the buffer was released", ErrArguments)

// onHost is a reference to the buffer, or a copy of it on the host.
func onHost(x *device.Buffer) (*device.Buffer, error) {
	if !x.TryRetain() {
		return nil, errReleased
	}
	if x.Device() == device.Host() && x.Len()%device.Int32.Size() == 0 { // as they travel
		return x, nil
	}
	defer drop(part{buf: x})
	y, err := device.Host().Alloc(padTo(x.Len(), device.Int32.Size()))
	if err != nil {
		return nil, err
	}
	mem, err := y.Host()
	if err == nil {
		err = x.Device().Download(mem[:x.Len()], x, 0)
	}
	if err != nil {
		_ = y.Release() // ours
		return nil, err
	}
	return y, nil
}

// joined makes a buffer of parts.
func (g *Group) joined(parts []part) (*device.Buffer, error) {
	if whole, ok := adjoining(parts); ok {
		return g.taken(whole)
	}
	pieces := make([]device.Piece, 0, len(parts))
	total := 0
	for _, p := range parts {
		if p.buf != nil {
			pieces = append(pieces, device.Piece{Buf: p.buf, Off: p.off, Len: len(p.mem)})
		}
		total += len(p.mem)
	}
	if len(pieces) == len(parts) && total >= device.SharedFrom {
		all, err := device.Join(pieces...)
		if err == nil && !all.ReadOnly() {
			g.moved.Add(2 * int64(total))
		}
		return all, err
	}
	all, err := device.Host().Alloc(total)
	if err != nil {
		return nil, err
	}
	mem, err := all.Host()
	if err != nil {
		return nil, err
	}
	g.copyOut(mem, parts)
	return all, nil
}
