package collective

import (
	"context"
	"fmt"
	"runtime"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// part is the bytes of a slot, and the buffer that they lie in, if they do.
type part struct {
	mem []byte
	buf *device.Buffer
	off int
}

// arrival is what a member has sent for a step.
type arrival struct {
	parts   []part
	buffers []*device.Buffer // one reference to each is held
}

func (a *arrival) release() {
	for _, b := range a.buffers {
		_ = b.Release() // an error here means that it was released before: nothing is held
	}
	a.buffers = nil
}

// inlined is how many bytes of a message at most travel in its header.
const inlined = 16 << 10

// alignment is how slots are aligned in their arrays, in bytes, so that no two members' pieces
// share a line of a cache.
const alignment = 64

// Pieces of pagedFrom bytes and more begin at multiples of pages, so that they can be mapped one
// behind the other. A multiple is of whole pages on most systems; all members cut alike. Where
// pages have 64 KiB most results are copied: multiples of those would leave members of small arrays
// nothing to sum.
const (
	pages     = 16 << 10
	pagedFrom = 128 << 10
)

// bounds is where a piece begins and ends in an array of so many bytes that is cut for so many
// members.
func bounds(bytes, size, piece int) (lo, hi int) {
	each := (bytes + size - 1) / size
	if each < pagedFrom {
		each = padTo(each, alignment)
	} else {
		each = padTo(each, pages)
	}
	return min(piece*each, bytes), min((piece+1)*each, bytes)
}

// letter makes a message of slots: where each of them lies, whether they travel inline, and else
// the tensors, to each of which a reference is held by keep, and how many bytes were copied.
func letter(parts []part, lend bool) (at []notePart, inline bool, tensors []transport.Tensor, keep arrival, copies int, err error) {
	at = make([]notePart, 0, len(parts))
	total := 0
	for _, p := range parts {
		at = append(at, notePart{Tensor: -1, Off: total, N: len(p.mem)})
		total += len(p.mem)
	}
	if total <= inlined {
		return at, true, nil, keep, total, nil
	}
	at = at[:0]
	known := map[*device.Buffer]int{}
	var loose []part // to be copied: what lies in no buffer may be changed once the caller gives up
	for _, p := range parts {
		if !lend && p.buf != nil && len(p.mem) > 0 && len(p.mem)%device.Int32.Size() == 0 {
			at = append(at, notePart{Tensor: len(tensors), N: len(p.mem)})
			view := viewOf(p)
			tensors, keep.buffers = append(tensors, bytesTensor(view)), append(keep.buffers, view)
			continue
		}
		if _, shared := segment(p.buf); !lend || !shared {
			at = append(at, notePart{Tensor: -2, N: len(p.mem)})
			loose = append(loose, p)
			continue
		}
		k, ok := known[p.buf]
		if !ok {
			k = len(tensors)
			known[p.buf] = k
			tensors = append(tensors, bytesTensor(p.buf))
			keep.buffers = append(keep.buffers, p.buf.Retain())
		}
		at = append(at, notePart{Tensor: k, Off: p.off, N: len(p.mem)})
	}
	if len(loose) == 0 {
		return at, false, tensors, keep, 0, nil
	}
	room := 0
	for _, p := range loose {
		room += padTo(len(p.mem), alignment)
	}
	copied, err := device.Host().Alloc(room)
	if err != nil {
		keep.release()
		return nil, false, nil, keep, 0, err
	}
	keep.buffers = append(keep.buffers, copied)
	mem, err := copied.Host()
	if err != nil {
		keep.release()
		return nil, false, nil, keep, 0, err
	}
	off := 0
	for i := range at {
		if at[i].Tensor != -2 {
			continue
		}
		at[i].Tensor, at[i].Off = len(tensors), off
		copy(mem[off:], loose[0].mem)
		off += padTo(len(loose[0].mem), alignment)
		loose = loose[1:]
	}
	runtime.KeepAlive(copied)
	return at, false, append(tensors, bytesTensor(copied)), keep, room, nil
}

// viewOf is a part as a buffer, to be read.
func viewOf(p part) *device.Buffer {
	whole := p.buf.Retain()
	return device.Foreign(p.mem, nil, func() { _ = whole.Release() }) // ours
}

func segment(b *device.Buffer) (*device.Segment, bool) {
	if b == nil {
		return nil, false
	}
	return b.Segment()
}

// padTo is the next multiple.
func padTo(n, of int) int { return (n + of - 1) / of * of }

// bytesTensor is a buffer as the wire takes it, whatever its elements are.
func bytesTensor(b *device.Buffer) transport.Tensor {
	return transport.Tensor{Dtype: device.Int32, Shape: device.Shape{b.Len() / device.Int32.Size()}, Buf: b}
}

// unpack finds the slots of a note that has arrived. It takes over the tensors, also where it
// fails.
func unpack(n *note, tensors []transport.Tensor) (*arrival, error) {
	a := &arrival{}
	mems := make([][]byte, len(tensors))
	for _, t := range tensors {
		if t.Buf != nil {
			a.buffers = append(a.buffers, t.Buf)
		}
	}
	for i, t := range tensors {
		if t.Buf == nil {
			a.release()
			return nil, fmt.Errorf("%w: an absent tensor", rpc.ErrProtocol)
		}
		mem, err := t.Buf.Host()
		if err != nil {
			a.release()
			return nil, err
		}
		mems[i] = mem
	}
	for _, at := range n.Slots {
		from, ok := n.body, at.Tensor == -1
		p := part{off: at.Off}
		if at.Tensor >= 0 && at.Tensor < len(mems) {
			from, ok, p.buf = mems[at.Tensor], true, tensors[at.Tensor].Buf
		}
		if !ok || at.Off < 0 || at.N < 0 || at.Off > len(from) || at.N > len(from)-at.Off || at.Off%4 != 0 && at.N > 0 && at.Tensor >= 0 {
			a.release()
			return nil, fmt.Errorf("%w: a slot of %d bytes at %d in %d of tensor %d", rpc.ErrProtocol, at.N, at.Off, len(from), at.Tensor)
		}
		p.mem = from[at.Off:][:at.N:at.N]
		a.parts = append(a.parts, p)
	}
	return a, nil
}

// checkParts compares what arrived with what the step waits for. want is the bytes of a slot, −1
// where any number may come.
func checkParts(a *arrival, m plan.Move, want func(s plan.Slot) int) error {
	if len(a.parts) != len(m.Slots) {
		return fmt.Errorf("%w: %d slots; expected %d", rpc.ErrProtocol, len(a.parts), len(m.Slots))
	}
	for i, s := range m.Slots {
		if w := want(s); w >= 0 && len(a.parts[i].mem) != w {
			return fmt.Errorf("%w: a slot of %d bytes; expected %d", rpc.ErrProtocol, len(a.parts[i].mem), w)
		}
	}
	return nil
}

// cutUp runs an operation on an array of one size on all members, which cut divides into pieces.
func (g *Group) cutUp(c context.Context, call desk.Call, mem []byte, cut func(i int) (lo, hi int), out func([]part) error) error {
	own := [2]int{}
	if call.Algorithm != plan.Spread && (call.Kind == plan.AllReduce || call.Kind == plan.ReduceScatter) {
		own[0], own[1] = cut(g.rank) // the piece that nobody else reads
	}
	whole, err := g.hold(mem, own[0], own[1])
	if err != nil {
		return g.refuse(c, call.Kind, err)
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
		if lo, hi := cut(i); hi <= len(whole.mem) { // else this member brings nothing
			in[plan.Raw(g.rank, i)] = part{mem: whole.mem[lo:hi], buf: whole.buf, off: lo}
		}
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
			return g.refuse(c, call.Kind, err)
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
