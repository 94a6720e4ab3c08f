package collective

import (
	"context"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
)

// cutUp runs an operation on an array of one size on all members, which cut divides into pieces.
func (g *Group) cutUp(c context.Context, call desk.Call, mem []byte, cut func(i int) (lo, hi int), out func([]part) error) error {
	own := [2]int{}
	if call.Algorithm != plan.Spread && (call.Kind == plan.AllReduce || call.Kind == plan.ReduceScatter) {
		own[0], own[1] = cut(g.rank) // the piece that nobody else reads
	}
	whole, err := g.hold(mem, own[0], own[1])
	if err != nil {
		return g.refuse(c, err)
	}
	if whole.buf != nil {
		defer drop(whole)
	}
	r := g.cutRun(call, whole, cut)
	if own[0] < own[1] {
		r.has[plan.Raw(g.rank, g.rank)] = part{mem: mem[own[0]:own[1]]}
	}
	if call.Kind == plan.AllReduce && call.Algorithm == plan.Spread && whole.buf != nil {
		r.into = func(piece int) []byte {
			lo, hi := cut(piece)
			return mem[lo:hi]
		}
	}
	return g.do(c, r, out)
}

// cutRun is an operation on an array of one size on all members, of which this member brings all.
func (g *Group) cutRun(call desk.Call, whole part, cut func(i int) (lo, hi int)) *run {
	in := map[plan.Slot]part{}
	for i := range g.members {
		lo, hi := cut(i)
		in[plan.Raw(g.rank, i)] = part{mem: whole.mem[lo:hi], buf: whole.buf, off: lo}
	}
	return &run{record: record{call: call}, has: in, size: func(s plan.Slot) int {
		lo, hi := cut(s.Piece)
		return hi - lo
	}}
}

// bring runs an operation to which this member brings pieces of any sizes.
func (g *Group) bring(c context.Context, call desk.Call, pieces map[int][]byte, out func([]part) error) error {
	in := map[plan.Slot]part{}
	for i, mem := range pieces {
		p, err := g.hold(mem, 0, 0)
		if err != nil {
			return g.refuse(c, err)
		}
		if p.buf != nil {
			defer drop(p)
		}
		in[plan.Raw(g.rank, i)] = p
	}
	return g.do(c, &run{record: record{call: call}, has: in, size: func(plan.Slot) int { return -1 }}, out)
}

// hold copies what is large to memory that members on this host can be lent. What lies there may be
// changed by its owner once the operation is over, while a slow member still reads. What lies
// between lo and hi is not copied.
func (g *Group) hold(mem []byte, lo, hi int) (part, error) {
	if len(mem) <= inlined || !g.anyNear {
		return part{mem: mem}, nil
	}
	buf, err := device.Host().Alloc(padTo(len(mem), alignment))
	if err != nil {
		return part{}, err
	}
	host, err := buf.Host()
	if err != nil {
		return part{}, err
	}
	g.moved.Add(2 * int64(len(mem)-(hi-lo)))
	copy(host, mem[:lo])
	copy(host[hi:], mem[hi:])
	return part{mem: host[:len(mem)], buf: buf}, nil
}

// drop gives back what hold has taken.
func drop(p part) { _ = p.buf.Release() } // nobody else releases it
