package collective

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/collective/internal/narrow"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// AllReduceBuffers replaces what is in buffers, elements of one dtype, by what op makes of all
// members' elements. The members bring buffers of the same sizes, on any devices. It is one
// operation, however many buffers there are, and is under way when this returns: it matches by the
// order of calls, not of ends. Nobody may use the buffers until the future is there, which gives
// them. Where it fails they are as they were. The context of the future's Wait bounds the waiting,
// and c the operation.
//
// Elements of bfloat16, which tensors do not have, are reduced in float32, and rounded once.
//
// They go by way of the host, unless the group was offered another way: see [Way].
func (g *Group) AllReduceBuffers(c context.Context, op Op, d device.Dtype, bufs ...*device.Buffer) *rpc.Future[[]*device.Buffer] {
	if err := there(g); err != nil {
		p := rpc.NewPromise[[]*device.Buffer]("AllReduce of buffers in no group")
		_ = p.Fail(fmt.Errorf("collective: AllReduce of buffers: %w", err)) // it is resolved here alone
		return p.Future()
	}
	scope, _ := c.Value(scopeKey{}).(string)
	at := place{what: fmt.Sprintf("buffers of %v", d), line: g.known.line()}
	g.mu.Lock()
	k, offered := place{}.number(g, scope), g.offered
	g.mu.Unlock()
	at.key = &k
	b := bundle{d: d}
	err := b.hold(op, bufs)
	for _, n := range b.lens() {
		at.what += fmt.Sprint(" ", n)
	}
	reduce := b.reduce
	if offered {
		reduce = b.where
	}
	p := rpc.NewPromise[[]*device.Buffer](fmt.Sprintf("AllReduce %v %v of %d buffers in group %q", op, k, len(bufs), g.name))
	runs := g.runs.Go(func() {
		defer b.giveBack()
		if err != nil {
			err = fmt.Errorf("collective: AllReduce of buffers %v in group %q: %w", k, g.name, err)
			g.giveUp(k, err)
		} else {
			err = reduce(context.WithValue(c, placeKey{}, at), g, op)
		}
		if err != nil {
			_ = p.Fail(err) // it is resolved here alone
			return
		}
		_ = p.Resolve(bufs) // likewise
	})
	if !runs {
		b.giveBack()
		_ = p.Fail(fmt.Errorf("collective: AllReduce of buffers %v in group %q: %w", k, g.name, ErrClosed)) // likewise
	}
	return p.Future()
}

// bundle is buffers that are reduced together.
type bundle struct {
	d    device.Dtype
	bufs []*device.Buffer // one reference each
	all  *device.Buffer   // what they hold, one behind the other
}

// hold takes references to the buffers, and checks them.
func (b *bundle) hold(op Op, bufs []*device.Buffer) error {
	sums := b.d
	if b.d == device.BFloat16 {
		sums = device.Float32
	}
	if err := op.Check(sums); err != nil {
		return err
	}
	for i, buf := range bufs {
		switch {
		case buf == nil || !buf.TryRetain():
			return fmt.Errorf("%w: buffer %d is nil, or was released", ErrArguments, i)
		case buf.ReadOnly():
			_ = buf.Release() // ours
			return fmt.Errorf("%w: buffer %d is borrowed, and cannot be written; give a copy", ErrArguments, i)
		}
		b.bufs = append(b.bufs, buf)
		if buf.Len()%b.d.Size() != 0 {
			return fmt.Errorf("%w: buffer %d of %d bytes; expected elements of %d", ErrArguments, i, buf.Len(), b.d.Size())
		}
	}
	return nil
}

func (b *bundle) giveBack() {
	for _, buf := range b.bufs {
		_ = buf.Release() // ours
	}
	if b.all != nil {
		_ = b.all.Release() // ours
	}
}

// lens are how many elements the buffers have.
func (b *bundle) lens() []int {
	n := make([]int, len(b.bufs))
	for i, buf := range b.bufs {
		n[i] = buf.Len() / max(b.d.Size(), 1)
	}
	return n
}

func (b *bundle) reduce(c context.Context, g *Group, op Op) error {
	if err := g.whole(c); err != nil {
		return err
	}
	bytes := 0
	for _, buf := range b.bufs {
		bytes += buf.Len()
	}
	var err error
	if b.all, err = device.Host().Alloc(bytes); err != nil {
		g.giveUp(*placeIn(c).key, err)
		return err
	}
	mem, err := b.all.Host()
	for off, i := 0, 0; err == nil && i < len(b.bufs); i++ {
		n := b.bufs[i].Len()
		err = b.bufs[i].Device().Download(mem[off:off+n], b.bufs[i], 0)
		off += n
	}
	if err != nil {
		g.giveUp(*placeIn(c).key, err)
		return err
	}
	if b.d == device.BFloat16 {
		r := g.narrowRun(narrow.BFloat16, op, len(mem)/2, part{mem: mem, buf: b.all}, nil)
		err = g.do(c, r, func(parts []part) error { // whoever reads mem has, or there were no sums
			g.copyOut(mem, parts)
			return nil
		})
	} else {
		mem, err = b.sums(c, g, op)
	}
	for off, i := 0, 0; err == nil && i < len(b.bufs); i++ {
		n := b.bufs[i].Len()
		err = b.bufs[i].Device().Upload(b.bufs[i], 0, mem[off:off+n])
		off += n
	}
	return err
}

// sums has the group reduce what the buffers hold, and gives the results.
func (b *bundle) sums(c context.Context, g *Group, op Op) ([]byte, error) {
	call, err := g.call(c, plan.AllReduce, op, b.d, b.all.Len()/b.d.Size(), 0)
	if err != nil {
		return nil, err
	}
	all, err := g.reducedOnHost(c, call, b.all)
	if err != nil {
		return nil, err
	}
	_ = b.all.Release() // ours; the others may still read it
	b.all = all
	return all.Host()
}
