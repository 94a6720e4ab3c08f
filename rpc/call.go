package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/admission"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
)

// calling is what a worker needs for its calls; what serving them needs as well is here too.
type calling struct {
	timeout   atomic.Int64 // nanoseconds, or NoTimeout
	errors    errorTypes
	pool      *admission.Pool
	outbounds sync.Pool // of *outbound

	clock counts.Clock
	trace *tracing.Tracer
	out   counts.FunctionStats // this worker's calls
}

func (cs *calling) init(p *prepared, work *sync.WaitGroup, end <-chan struct{}) {
	cs.timeout.Store(int64(p.Timeout))
	cs.errors = p.errors
	cs.pool = admission.NewPool(work, end)
	cs.clock = counts.NewClock()
}

// request is a call or a fetch before it is put on the wire.
type request struct {
	kind  uint8
	name  string
	codec *codec.Codec // of the argument
	arg   any          // points to the argument; nil in a fetch
	keep  *creation    // the result stays there
	fetch *refs.ID     // what is wanted in a fetch
}

// outbound is a request whose arguments are packed: their tensors are held until it ends, their
// references until they are shared.
type outbound struct {
	w      *Worker
	p      *membership.Peer
	what   string
	c      context.Context
	cancel context.CancelFunc // nil where there is nothing to cancel
	parcel
	h     wire.CallHeader
	stats *counts.CallStats
	span  *tracing.Span
	began time.Duration // by the worker's clock
}

// start counts a request as outstanding and packs it. What it gives must be run; it fails with the
// error for the user.
func (w *Worker) start(c context.Context, to string, r request) (*outbound, error) {
	if err := w.countWork(); err != nil {
		return nil, w.wrap(to, r.name, err)
	}
	o := w.calls.outbound()
	o.w, o.what, o.m.Kind = w, r.name, r.kind
	o.count(r)
	o.c, o.cancel = w.deadline(c)
	if o.span = w.calls.trace.BeginIn(c); o.span != nil {
		o.h.Span = uint64(o.span.ID)
	}
	var err error
	if o.p, err = w.members.Lookup(o.c, to); err == nil {
		err = o.packUp(r)
	}
	if err != nil {
		o.conclude(err)
		return nil, w.wrap(to, r.name, err)
	}
	return o, nil
}

// packUp reads the arguments: they may change when it has returned.
func (o *outbound) packUp(r request) error {
	if r.kind == wire.KindFetch {
		o.h.Ref = r.fetch
		return nil
	}
	o.h.Function = r.name
	if err := r.codec.Encode(&o.pack, r.arg, &o.value); err != nil {
		return err
	}
	if r.keep != nil {
		if err := r.keep.begin(o.w, o.p); err != nil {
			return err
		}
		o.h.Ref = &r.keep.id
	}
	return o.load(o.c, func(i int) (device.ID, error) { return o.p.Target(o.p.There, o.pack.Tensors[i].Device()) })
}

// count counts a call that begins.
func (o *outbound) count(r request) {
	name := r.name
	if r.kind == wire.KindFetch {
		name = counts.FetchLabel
	}
	o.stats = o.w.calls.out.Of(name)
	o.stats.InFlight.Add(1)
	o.began = o.w.calls.clock.Now()
}

// conclude counts how the call ended and lets go of everything; o is somebody else's afterwards.
func (o *outbound) conclude(err error) {
	w := o.w
	o.stats.Observe(w.calls.clock.Now() - o.began)
	o.stats.End(outcomeOf(err))
	o.endSpan(err)
	if o.cancel != nil {
		o.cancel()
	}
	w.calls.reuse(o)
	w.load.Finish()
}

// endSpan ends the caller's span.
func (o *outbound) endSpan(err error) {
	if o.span == nil {
		return
	}
	kind, function, to := tracing.SpanCall, o.what, ""
	switch {
	case o.m.Kind == wire.KindFetch:
		kind, function = tracing.SpanFetch, ""
	case o.h.Ref != nil:
		kind = tracing.SpanRemote
	}
	if o.p != nil {
		to = o.p.Name
	}
	pass, _ := ctx.From(o.c)
	var id ctx.PassID
	if pass != nil {
		id = pass.ID()
	}
	o.w.calls.trace.End(o.span, trace.Caller, kind, function, to, id, err)
}

// outbound gives what a request is put together in.
func (cs *calling) outbound() *outbound {
	o, _ := cs.outbounds.Get().(*outbound)
	if o == nil {
		o = &outbound{}
	}
	return o
}

// reuse lets go of what a request held, and keeps its memory.
func (cs *calling) reuse(o *outbound) {
	if o.empty() {
		*o = outbound{parcel: o.parcel}
		cs.outbounds.Put(o)
	}
}

type timeoutKey struct{}

// WithTimeout gives the calls made under c a deadline of their own, counted from when each is made;
// NoTimeout lets them take as long as they like. It beats the worker's default. A deadline that c
// has holds as well. Where d is 0 or less the time is up already, as with context.WithTimeout: the
// calls fail at once with ErrTimeout.
func WithTimeout(c context.Context, d time.Duration) context.Context {
	return context.WithValue(c, timeoutKey{}, d)
}

// SetTimeout changes the deadline of calls whose context has none, for calls made from now on;
// NoTimeout for none.
func (w *Worker) SetTimeout(d time.Duration) error {
	if d <= 0 && d != NoTimeout {
		return w.wrap("", "set timeout", fmt.Errorf("%w: timeout %v; expected a positive one, or NoTimeout", ErrConfig, d))
	}
	w.calls.timeout.Store(int64(d))
	return nil
}

// Timeout is the deadline of a call whose context has none.
func (w *Worker) Timeout() time.Duration { return time.Duration(w.calls.timeout.Load()) }

// deadline gives a call its deadline. A call also ends with the worker, as its link does.
func (w *Worker) deadline(c context.Context) (context.Context, context.CancelFunc) {
	d, own := c.Value(timeoutKey{}).(time.Duration)
	if !own {
		if _, has := c.Deadline(); has {
			return c, nil
		}
		d = w.Timeout()
	}
	if d == NoTimeout {
		return c, nil
	}
	return context.WithTimeout(c, d)
}

// left is what remains of the deadline, 0 for none.
func left(c context.Context) time.Duration {
	if d, ok := c.Deadline(); ok {
		return max(time.Until(d), time.Nanosecond)
	}
	return 0
}

// sendAndWait sends the request and stores the answer's value in what out points to; a nil out
// takes no value.
func (o *outbound) sendAndWait(result *codec.Codec, out any) (err error) {
	defer func() { o.conclude(err) }()
	if result != nil && result.Refers() {
		o.h.Ticket = o.w.refs.ticket(o.p)
	}
	err = o.share(o.c, o.w, o.p, 0)
	if err == nil {
		err = o.roundTrip(result, out)
	}
	if err != nil {
		o.recall(o.w, o.p)
		o.w.refs.abandon(o.p, o.h.Ticket)
	}
	return o.w.wrap(o.p.Name, o.what, err)
}

// roundTrip records the tensors in the pass, sends, and takes the answer.
func (o *outbound) roundTrip(result *codec.Codec, out any) (err error) {
	w, p, c := o.w, o.p, o.c
	info, unsend, err := record(c, p, o.what, o.pack.Tensors)
	if err != nil {
		return err
	}
	if unsend != nil {
		defer func() {
			if err != nil {
				unsend()
			}
		}()
	}
	o.h.Timeout, o.h.Pass, o.h.Refs = left(c), info, o.shares
	if o.head, err = o.h.Append(o.head[:0]); err != nil {
		return err
	}
	o.head = append(o.head, o.value.Bytes()...)
	o.m.Header = o.head
	link, err := p.Connection(c)
	if err != nil {
		return err
	}
	reply, err := exchange(c, link, &o.m, w.bufferOn)
	if err != nil {
		return p.Explain(c, err)
	}
	if o.span != nil {
		o.span.Sent, o.span.Received = sizeOf(&o.m), sizeOf(reply)
	}
	defer reply.Release()
	var h wire.ReplyHeader
	err = w.calls.parseReply(reply, &h)
	if err == nil && out != nil {
		err = arrived{reply, result, h.Pass, h.Refs, h.Value}.unpack(c, w, p, out)
	}
	return err
}

// remote starts a call whose result stays at the callee.
func (w *Worker) remote(c context.Context, to string, r request) *ref {
	keep := &creation{}
	r.keep = keep
	o, err := w.start(c, to, r)
	if err != nil {
		err = keep.end(w, err)
		w.refs.release(keep.hold)
		return failedRef(err)
	}
	ref := w.refs.newRef(keep.hold, keep.id, false)
	ref.state.users = 1 // the call: the share is not given back while it is under way
	w.calls.pool.Do(func() {
		err := o.sendAndWait(nil, nil)
		ref.resolve(keep.end(w, err))
		ref.unpin()
	})
	return ref
}

// fetch copies a reference's value from its owner into what out points to.
func (w *Worker) fetch(c context.Context, r *ref, result *codec.Codec, out any) error {
	o, err := w.start(c, r.Owner(), request{kind: wire.KindFetch, name: "fetch", fetch: &r.id})
	if err != nil {
		return err
	}
	return o.sendAndWait(result, out)
}
