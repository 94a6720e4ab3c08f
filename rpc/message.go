package rpc

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/payload"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// Messages that carry a value: calls and fetches, and their answers. Both ends put them together
// and take them apart with what is here.

// parcel is such a message while it is put together. It holds the value's tensors until it is
// emptied, its references until they are shared.
type parcel struct {
	m      transport.Message
	pack   codec.Packing
	shares []refs.Share // the receiver's, once share has run
	value  bytes.Buffer // encoded
	head   []byte
}

// maxKept bounds the memory that an idle parcel keeps.
const maxKept = 64 << 10

// parcels are kept for the next answer.
type parcels struct{ pool sync.Pool }

func (p *parcels) get() *parcel {
	x, _ := p.pool.Get().(*parcel)
	if x == nil {
		x = &parcel{}
	}
	return x
}

// put empties a parcel and keeps its memory.
func (p *parcels) put(x *parcel) {
	if x.empty() {
		p.pool.Put(x)
	}
}

// empty lets go of what the parcel held; it says whether its memory is worth keeping.
func (x *parcel) empty() bool {
	x.m.Release()
	x.pack.Unpin()
	if x.value.Cap()+cap(x.head) > maxKept {
		return false
	}
	x.value.Reset()
	*x = parcel{value: x.value, head: x.head[:0]}
	return true
}

// load puts the value's tensors into the message, each with the device it is to land on.
func (x *parcel) load(c context.Context, target func(i int) (device.ID, error)) error {
	if err := ofPass(c, x.pack.Tensors); err != nil {
		return err
	}
	return payload.Outgoing(&x.m, x.pack.Tensors, target)
}

// share gives the receiver a share in each reference, which may be released then. ticket is the
// call's where this is an answer.
func (x *parcel) share(c context.Context, w *Worker, to *membership.Peer, ticket uint64) error {
	for _, r := range x.pack.Refs {
		s, err := w.refs.share(c, (*ref)(r.(*pinnable)), to, ticket)
		if err != nil {
			return err
		}
		x.shares = append(x.shares, s)
	}
	x.pack.Unpin() // the shares stand in for them
	return nil
}

// recall asks the shares back from a receiver that may not have got them.
func (x *parcel) recall(w *Worker, from *membership.Peer) {
	if len(x.shares) > 0 {
		w.refs.do(func(m *refs.Machine, now time.Time) {
			for _, s := range x.shares {
				m.Recall(now, from.Node, s)
			}
		})
	}
}

// record attaches the send function of a message that leaves in a pass. unsend, where there is one,
// takes it back when nobody will ever send its gradients.
func record(c context.Context, p *membership.Peer, what string, tensors []*autodiff.Tensor) (info *wire.PassInfo, unsend func(), err error) {
	pass, ok := ctx.From(c)
	if !ok {
		return nil, nil, nil
	}
	id := pass.NextMessage()
	info = &wire.PassInfo{Pass: uint64(pass.ID()), Message: uint64(id), NoGrad: !ctx.Recording(c)}
	pass.Meet(ctx.WorkerID(p.Rank))
	if info.NoGrad {
		pass.NoteSend(id, ctx.WorkerID(p.Rank), what, tensors)
		return info, func() { pass.DropSend(id) }, nil
	}
	info.Tensors = payload.Infos(tensors)
	info.Past, err = pass.AttachSend(id, ctx.WorkerID(p.Rank), what, tensors)
	return info, func() { pass.DropSend(id) }, err
}

// ofPass refuses tensors of a pass or arena that the context does not carry: their gradients would
// be lost without a word. Those of nobody may leave without a pass, and are not recorded then.
func ofPass(c context.Context, tensors []*autodiff.Tensor) error {
	if len(tensors) == 0 || c.Err() != nil { // who has ended the call knows better what is wrong
		return nil
	}
	var mine *autodiff.Arena
	if pass, ok := ctx.From(c); ok {
		mine = pass.Arena()
	}
	return mine.Sends(tensors...)
}

// sizeOf is how many bytes of header and tensors a message has.
func sizeOf(m *transport.Message) int64 {
	n := int64(len(m.Header))
	for _, t := range m.Tensors {
		if t.Buf != nil {
			n += int64(t.Buf.Len())
		}
	}
	return n
}

// arrived is a value that a peer's message brought.
type arrived struct {
	m      *transport.Message
	codec  *codec.Codec
	pass   *wire.PassInfo
	shares []refs.Share
	raw    []byte // the value
}

// unpack fills what into points to. The tensors become the pass's that c carries; the references
// are confirmed by their owners before it returns.
func (a arrived) unpack(c context.Context, w *Worker, from *membership.Peer, into any) error {
	var u codec.Unpacking
	if len(a.m.Tensors) > 0 || a.pass != nil {
		pass, _ := ctx.From(c)
		u.Tensors = payload.Incoming(a.m, pass)
		if err := payload.AttachRecv(pass, a.pass, from.Rank, u.Tensors); err != nil {
			return err
		}
	}
	var err error
	if u.Refs, err = w.refs.hold(c, from, a.shares); err != nil {
		return err
	}
	return a.codec.Decode(&u, a.raw, into)
}
