package rpc

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/refs"
	"github.com/weft-project/weft/transport"
)

// outbound is a request whose arguments are packed: their tensors are held until it ends, their references until they are shared.
type outbound struct {
	w      *Worker
	p      *peer
	what   string
	c      context.Context
	cancel context.CancelFunc
	m      *transport.Message
	pack   packing
	header func(*passInfo) any // called when the references are shared
	ticket uint64              // where the answer may bring references
}

// start counts a request as outstanding and packs it. What it gives must be run; it fails with the error for the user.
func (w *Worker) start(c context.Context, to, what string, kind uint8, pack func(*outbound) error) (*outbound, error) {
	if err := w.begin(); err != nil {
		return nil, w.wrap(to, what, err)
	}
	o := &outbound{w: w, what: what, m: &transport.Message{Kind: kind}}
	o.c, o.cancel = w.deadline(c)
	var err error
	if o.p, err = w.find(to); err == nil {
		err = pack(o)
	}
	if err == nil {
		there := func(i int) (device.ID, error) { return o.p.there.Target(o.pack.tensors[i].Device()) }
		err = outgoing(o.m, o.pack.tensors, there)
	}
	if err != nil {
		o.end()
		return nil, w.wrap(to, what, err)
	}
	return o, nil
}

// end lets go of everything.
func (o *outbound) end() {
	o.m.Release()
	o.pack.unpin()
	o.cancel()
	o.w.finish()
}

// startCall packs a call.
func (w *Worker) startCall(c context.Context, to string, r *request) (*outbound, error) {
	return w.start(c, to, r.name, kindCall, func(o *outbound) error {
		tree, err := r.codec.pack(&o.pack, r.arg, 0)
		if err != nil {
			return err
		}
		args, err := encode(tree)
		if err != nil {
			return err
		}
		h := callHeader{Function: r.name, Args: args}
		if r.keep != nil {
			if err := r.keep.begin(w, o.p); err != nil {
				return err
			}
			h.Keep = &r.keep.id
		}
		o.header = func(info *passInfo) any {
			h.Timeout, h.Pass, h.Ticket, h.Refs = left(o.c), info, o.ticket, o.pack.shares
			return h
		}
		return nil
	})
}

// deadline gives a call its default deadline where its context has none, and ends it with the worker.
func (w *Worker) deadline(c context.Context) (context.Context, context.CancelFunc) {
	stopTimer := func() {}
	if _, has := c.Deadline(); !has && w.timeout != NoTimeout {
		c, stopTimer = context.WithTimeout(c, w.timeout)
	}
	c, stop := context.WithCancelCause(c)
	unhook := context.AfterFunc(w.life, func() { stop(context.Cause(w.life)) })
	return c, func() { unhook(); stop(nil); stopTimer() }
}

// left is what remains of the deadline, 0 for none.
func left(c context.Context) time.Duration {
	if d, ok := c.Deadline(); ok {
		return max(time.Until(d), time.Nanosecond)
	}
	return 0
}

// run sends the request and stores the answer's value in out; an invalid out takes no value.
func (o *outbound) run(result *codec, out reflect.Value) error {
	defer o.end()
	if result != nil && result.refers {
		o.ticket = o.w.ticket(o.p)
	}
	err := o.pack.share(o.c, o.w, o.p, 0)
	if err == nil {
		err = o.roundTrip(result, out)
	}
	if err != nil {
		o.pack.recall(o.w, o.p)
		o.w.abandon(o.p, o.ticket)
	}
	return o.w.wrap(o.p.name, o.what, err)
}

// roundTrip records the tensors in the pass, sends, and takes the answer.
func (o *outbound) roundTrip(result *codec, out reflect.Value) (err error) {
	w, p, c := o.w, o.p, o.c
	info, unsend, err := w.record(c, p, o.what, o.pack.tensors)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			unsend()
		}
	}()
	if o.m.Header, err = encode(o.header(info)); err != nil {
		return err
	}
	link, err := p.connection(c)
	if err != nil {
		return err
	}
	reply, err := exchange(c, link, o.m, w.place)
	if err != nil {
		return p.explain(c, err)
	}
	defer reply.Release()
	h, err := parseReply(reply)
	if err == nil && out.IsValid() {
		err = w.receive(c, p, reply, h, result, out)
	}
	return err
}

// record attaches the send function of a message that leaves in a pass. unsend takes it back when nobody will ever send
// its gradients.
func (w *Worker) record(c context.Context, p *peer, what string, tensors []*autodiff.Tensor) (info *passInfo, unsend func(), err error) {
	pass, ok := ctx.From(c)
	if err := ofPass(pass, tensors); err != nil {
		return nil, nil, err
	}
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
	return info, func() { pass.DropSend(id) }, pass.AttachSend(id, ctx.WorkerID(p.rank), what, tensors)
}

// ofPass refuses tensors of a pass that the context does not carry: their gradients would be lost without a word.
func ofPass(pass *ctx.Pass, tensors []*autodiff.Tensor) error {
	for _, t := range tensors {
		if owner := t.Owner(); owner != nil && (pass == nil || pass.Arena() != owner) {
			return fmt.Errorf("%w: %v belongs to %v, which the call's context does not carry; use the context that Worker.Pass gives to its function",
				autodiff.ErrMixedPasses, t, owner)
		}
	}
	return nil
}

// receive unpacks an answer into out.
func (w *Worker) receive(c context.Context, p *peer, m *transport.Message, h *replyHeader, result *codec, out reflect.Value) error {
	pass, _ := ctx.From(c)
	tensors := incoming(m, pass)
	if err := attachRecv(pass, h.Pass, p.rank, tensors); err != nil {
		return err
	}
	return w.unpack(c, p, result, h.Value, tensors, h.Refs, out)
}

// unpack fills a value from the wire; references in it are confirmed by their owners before it returns.
func (w *Worker) unpack(c context.Context, from *peer, cd *codec, raw cbor.RawMessage, tensors []*autodiff.Tensor, shares []refs.Share, into reflect.Value) error {
	held, err := w.hold(c, from, shares)
	if err != nil {
		return err
	}
	u := unpacking{tensors: tensors, refs: held, used: make([]bool, len(held))}
	err = cd.unpack(&u, raw, into, 0)
	u.leave(err != nil)
	return err
}

// remote starts a call whose result stays at the callee.
func (w *Worker) remote(c context.Context, to string, r *request) *ref {
	r.keep = &creation{}
	o, err := w.startCall(c, to, r)
	if err != nil {
		err = r.keep.end(w, err)
		w.refs.release(r.keep.hold)
		return failedRef(err)
	}
	ref := w.newRef(r.keep.hold, r.keep.id, false)
	ref.state.users = 1 // the call: the share is not given back while it is under way
	go func() {
		err := o.run(nil, reflect.Value{})
		ref.settle(r.keep.end(w, err))
		ref.unpin()
	}()
	return ref
}

// fetch copies a reference's value from its owner.
func (w *Worker) fetch(c context.Context, r *ref, result *codec, out reflect.Value) error {
	o, err := w.start(c, r.Owner(), "fetch", kindFetch, func(o *outbound) error {
		o.header = func(info *passInfo) any { return fetchHeader{r.id, info, left(o.c), o.ticket} }
		return nil
	})
	if err != nil {
		return err
	}
	return o.run(result, out)
}
