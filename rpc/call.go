package rpc

import (
	"context"
	"reflect"
	"runtime"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
)

// call makes one call and stores the result in out.
func (w *Worker) call(c context.Context, to string, r *request, result *codec, out reflect.Value) error {
	if err := w.begin(); err != nil {
		return w.wrap(to, r.name, err)
	}
	defer w.finish()
	p, err := w.find(to)
	if err != nil {
		return w.wrap(to, r.name, err)
	}
	c, cancel := w.deadline(c)
	defer cancel()
	err = w.send(c, p, r, func(m *transport.Message, h *replyHeader) error {
		return w.receive(c, p, m, h, result, out)
	})
	return w.wrap(p.name, r.name, err)
}

// deadline gives a call its default deadline where its context has none.
func (w *Worker) deadline(c context.Context) (context.Context, context.CancelFunc) {
	if _, has := c.Deadline(); has || w.timeout == NoTimeout {
		return context.WithCancel(c)
	}
	return context.WithTimeout(c, w.timeout)
}

// left is what remains of the deadline, 0 for none.
func left(c context.Context) time.Duration {
	if d, ok := c.Deadline(); ok {
		return max(time.Until(d), time.Nanosecond)
	}
	return 0
}

// send packs a request, sends it, and hands the answer to take. References in the request are held until then.
func (w *Worker) send(c context.Context, p *peer, r *request, take func(*transport.Message, *replyHeader) error) error {
	pack := packing{refs: func(ref *ref) (refID, error) { return w.share(c, ref, p) }}
	tree, err := r.codec.pack(&pack, r.arg, 0)
	if err != nil {
		return err
	}
	h := callHeader{Function: r.name, Timeout: left(c), Ref: r.keep}
	if h.Args, err = encode(tree); err != nil {
		return err
	}
	defer runtime.KeepAlive(r.arg.Interface())
	return w.roundTrip(c, p, kindCall, pack.tensors, func(info *passInfo) any { h.Pass = info; return h }, take)
}

// roundTrip is the common part of calls and fetches: it records the tensors in the pass, sends, and has the answer taken before
// the stream is closed, so that the peer keeps what the answer refers to until it is counted here.
func (w *Worker) roundTrip(c context.Context, p *peer, kind uint8, tensors []*autodiff.Tensor,
	header func(*passInfo) any, take func(*transport.Message, *replyHeader) error,
) error {
	m := &transport.Message{Kind: kind}
	if err := outgoing(m, tensors, func(i int) (device.ID, error) { return p.there.Target(tensors[i].Device()) }); err != nil {
		return err
	}
	defer m.Release()
	info, unsend, err := w.record(c, p, tensors)
	if err != nil {
		return err
	}
	if m.Header, err = encode(header(info)); err != nil {
		unsend()
		return err
	}
	link, err := p.connection(c)
	if err != nil {
		unsend()
		return err
	}
	s, err := link.Open(c)
	if err != nil {
		unsend()
		return p.explain(c, err)
	}
	reply, err := converse(c, s, m, w.place)
	if err != nil {
		s.Reset(err)
		unsend()
		return p.explain(c, err)
	}
	defer reply.Release()
	h, err := parseReply(reply)
	if err != nil {
		unsend()
	} else {
		err = take(reply, h)
	}
	finish(s, nil)
	return err
}

// record attaches the send function of a message that leaves in a pass. unsend takes it back when nobody will ever send
// its gradients.
func (w *Worker) record(c context.Context, p *peer, tensors []*autodiff.Tensor) (info *passInfo, unsend func(), err error) {
	pass, ok := ctx.From(c)
	if !ok {
		return nil, func() {}, nil
	}
	id := pass.NextMessage()
	info = &passInfo{Pass: uint64(pass.ID()), Message: uint64(id), NoGrad: !ctx.Recording(c)}
	pass.Meet(ctx.WorkerID(p.rank))
	if info.NoGrad {
		return info, func() {}, nil
	}
	info.Tensors = infos(tensors)
	return info, func() { pass.DropSend(id) }, pass.AttachSend(id, ctx.WorkerID(p.rank), tensors)
}

// receive unpacks an answer into out.
func (w *Worker) receive(c context.Context, p *peer, m *transport.Message, h *replyHeader, result *codec, out reflect.Value) error {
	pass, _ := ctx.From(c)
	tensors := incoming(m, pass)
	if err := attachRecv(pass, h.Pass, p.rank, tensors); err != nil {
		return err
	}
	return w.unpack(c, result, h.Value, tensors, out)
}

// unpack fills a value from the wire; references in it are counted before it returns.
func (w *Worker) unpack(c context.Context, cd *codec, raw cbor.RawMessage, tensors []*autodiff.Tensor, into reflect.Value) error {
	u := unpacking{tensors: tensors, refs: func(id refID) (*ref, error) { return w.hold(c, id) }}
	return cd.unpack(&u, raw, into, 0)
}

// remote starts a call whose result stays at the callee.
func (w *Worker) remote(c context.Context, to string, r *request) *ref {
	p, err := w.find(to)
	if err == nil {
		err = w.begin()
	}
	if err != nil {
		return failedRef(w.wrap(to, r.name, err))
	}
	id := refID{Owner: p.rank, ID: w.nextID(), Fork: w.nextID()}
	r.keep = &id
	ref := w.newRef(id, true)
	c, cancel := w.deadline(c)
	go func() {
		defer w.finish()
		defer cancel()
		err := w.send(c, p, r, func(*transport.Message, *replyHeader) error { return nil })
		ref.settle(w.wrap(p.name, r.name, err))
	}()
	return ref
}

// fetch copies a reference's value from its owner.
func (w *Worker) fetch(c context.Context, r *ref, result *codec, out reflect.Value) error {
	if err := w.begin(); err != nil {
		return w.wrap(r.Owner(), "fetch", err)
	}
	defer w.finish()
	p := w.peers[r.id.Owner]
	c, cancel := w.deadline(c)
	defer cancel()
	h := fetchHeader{Ref: r.id, Timeout: left(c)}
	err := w.roundTrip(c, p, kindFetch, nil, func(info *passInfo) any { h.Pass = info; return h },
		func(m *transport.Message, rh *replyHeader) error { return w.receive(c, p, m, rh, result, out) })
	return w.wrap(p.name, "fetch", err)
}
