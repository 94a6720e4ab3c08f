package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/admission"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/transport"
)

// serving is the part of a worker that answers its peers.
type serving struct {
	w         *Worker
	functions map[string]*handler
	gate      *admission.Gate[*inbound]
	stats     counts.FunctionStats // the calls of peers
	unserved  atomic.Uint64        // calls of peers that are of no function
	answers   parcels
	observers atomic.Int32 // how many are being answered
}

func newServing(w *Worker, p *prepared) *serving {
	sv := &serving{w: w, functions: p.serves, gate: admission.New[*inbound](p.MaxRunning, p.MaxQueued)}
	for _, h := range p.serves {
		h.stats = sv.stats.Of(h.name)
	}
	return sv
}

// serveStream answers one request of a peer. Only calls wait for their turn: what they wait for may
// need the others.
func (sv *serving) serveStream(p *membership.Peer, s transport.Stream) {
	w := sv.w
	m, err := s.Recv(context.Background(), w.bufferOn) // ends with the stream, and with the link
	if err != nil {
		if err != io.EOF && !ended(err) { // what arrived cannot be taken; the peer deserves to hear why
			err = sv.reply(s, &wire.ReplyHeader{}, nil, err)
		}
		s.Reset(err)
		return
	}
	if err := sv.beginFor(m.Kind); err != nil {
		m.Release()
		s.Reset(sv.reply(s, &wire.ReplyHeader{}, nil, err))
		return
	}
	if m.Kind == wire.KindCall {
		sv.serveCall(p, s, m)
		return
	}
	defer w.load.Finish()
	defer m.Release()
	defer s.Reset(errUnanswered) // does nothing to a stream that was ended in good order
	defer func() {
		if r := recover(); r != nil { // a bug of ours, which must not be a peer's weapon
			err := &panicError{r, stack()}
			w.logPanic("a request made this worker panic", p, fmt.Sprintf("kind %d", m.Kind), err)
			s.Reset(sv.reply(s, &wire.ReplyHeader{}, nil, err))
		}
	}()
	switch m.Kind {
	case wire.KindFetch:
		err = sv.serveFetch(p, s, m)
	case wire.KindRefs:
		err = sv.serveRefs(p, s, m)
	case wire.KindRenew:
		err = sv.serveRenew(s, m)
	case wire.KindGraph:
		err = sv.serveGraph(s, m)
	case wire.KindPost:
		err = w.posts.deliver(infoOf(p), m)
	default:
		err = sv.reply(s, &wire.ReplyHeader{}, nil, sv.control(w.Context(s.Context()), p, m))
	}
	s.Reset(err)
}

// ended says that there is nobody to answer any more.
func ended(err error) bool {
	for _, e := range []error{transport.ErrReset, transport.ErrPeerLost, transport.ErrPeerClosed, transport.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

var errUnanswered = errors.New("the function ended its goroutine")

// control handles the requests whose answer is only whether they succeeded.
func (sv *serving) control(c context.Context, p *membership.Peer, m *transport.Message) error {
	w := sv.w
	from := ctx.WorkerID(p.Rank)
	switch m.Kind {
	case wire.KindGradients:
		return sv.serveGradients(c, p, m)
	case wire.KindAbort:
		var h wire.AbortHeader
		if err := wire.Decode(m.Header, &h); err != nil {
			return err
		}
		if h.Err == nil {
			return fmt.Errorf("%w: a failure without a cause", ErrProtocol)
		}
		return w.passes.HandleAbort(c, h.Failure.Because(w.calls.errors.fromWire(h.Err)))
	case wire.KindCleanup:
		var h wire.CleanupHeader
		if err := wire.Decode(m.Header, &h); err != nil {
			return err
		}
		w.passes.HandleCleanup(c, ctx.PassID(h.Pass), from)
		return nil
	case wire.KindNews:
		return w.members.ServeNews(p, m)
	}
	return fmt.Errorf("%w: kind %d is no request", ErrProtocol, m.Kind)
}

// reply answers. With an error the rest of the answer is left out. An answer that is beyond the
// wire's limits becomes an error. The work's deadline does not bound it: that the deadline has
// passed is what it may have to say.
func (sv *serving) reply(s transport.Stream, h *wire.ReplyHeader, m *transport.Message, err error) error {
	w := sv.w
	if m == nil || err != nil {
		m = &transport.Message{}
	}
	m.Kind, m.End = wire.KindReply, true
	if err != nil {
		h = &wire.ReplyHeader{Err: w.calls.errors.toWire(w.name, ctx.AsTimeout(err))}
	}
	if m.Header, err = h.Append(m.Header[:0]); err != nil {
		return err
	}
	m.Header = append(m.Header, h.Value...)
	err = s.Send(context.Background(), m) // ends with the stream, and with the link
	if errors.Is(err, transport.ErrFrame) && h.Err == nil && !ended(err) {
		return errors.Join(sv.reply(s, h, nil, fmt.Errorf("%w: the result: %w", ErrArguments, err)), errNotDelivered)
	}
	return err
}

// errNotDelivered: the peer got an error in place of the result.
var errNotDelivered = errors.New("the result was not delivered")

// within gives the callee what was left of the caller's deadline.
func within(c context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout > 0 {
		return context.WithTimeout(c, timeout)
	}
	return context.WithCancel(c)
}

// enterPass finds or makes the pass of a request.
func (sv *serving) enterPass(c *callContext, info *wire.PassInfo) (context.Context, func(), error) {
	w := sv.w
	p := c.p
	id := ctx.PassID(info.Pass)
	opener := w.members.Seek(c, int(id.Creator()))
	if opener == nil {
		return c, nil, fmt.Errorf("%w: pass %v of a worker that nobody knows", ErrProtocol, id)
	}
	if opener.Lost() == nil && !ofLife(info.Pass, opener.Node.Epoch) {
		return c, nil, fmt.Errorf("%w: pass %v is not of this life of %s", ctx.ErrUnknownPass, id, opener.Name)
	}
	in, _, done, err := w.passes.Enter(c, id, ctx.WorkerID(p.Rank), c.passOver)
	if err != nil {
		return c, nil, err
	}
	if gone := opener.Lost(); gone != nil { // nobody would ever free the pass
		done()
		w.passes.PeerLost(id.Creator(), gone)
		return c, nil, fmt.Errorf("%w: the worker that opened it: %w", ctx.ErrUnknownPass, gone)
	}
	if info.NoGrad {
		in = ctx.NoGrad(in)
	}
	return in, done, nil
}

// serveFetch answers with the value of a reference that this worker owns.
func (sv *serving) serveFetch(p *membership.Peer, s transport.Stream, m *transport.Message) (err error) {
	w := sv.w
	stats, began := sv.stats.Of(counts.FetchLabel), w.calls.clock.Now()
	stats.InFlight.Add(1)
	var refused error
	var h wire.CallHeader
	own := &callContext{w: w, p: p, s: s, function: counts.FetchLabel}
	defer func() {
		w.calls.trace.End(own.span, trace.Callee, tracing.SpanFetch, "", p.Name, h.PassID(), cmp.Or(refused, err))
		stats.Observe(w.calls.clock.Now() - began)
		stats.End(outcomeOf(cmp.Or(refused, err)))
	}()
	refuse := func(err error) error {
		refused = err
		return sv.reply(s, &wire.ReplyHeader{}, nil, err)
	}
	err = h.Parse(m.Header)
	own.span = w.calls.trace.Begin(h.Span)
	if err == nil && h.Ref == nil {
		err = fmt.Errorf("%w: a fetch of nothing", ErrProtocol)
	}
	if err != nil {
		return refuse(err)
	}
	own.start(h.Timeout)
	defer own.stop()
	var c context.Context = own
	if h.Pass != nil {
		own.pass = h.PassID()
		in, leave, err := sv.enterPass(own, h.Pass)
		if err != nil {
			return refuse(err)
		}
		defer leave()
		c = in
	}
	v, err := w.refs.value(c, *h.Ref)
	if err != nil {
		return refuse(err)
	}
	cd, err := forms.For(v.Type())
	at := reflect.New(v.Type())
	at.Elem().Set(v)
	refused, err = sv.answer(c, p, s, &handler{name: "fetch", out: cd}, at.Interface(), h.Ticket, err)
	return err
}

// serveRefs takes control messages of references.
func (sv *serving) serveRefs(p *membership.Peer, s transport.Stream, m *transport.Message) error {
	w := sv.w
	var h wire.RefsHeader
	if err := wire.Decode(m.Header, &h); err != nil {
		return sv.reply(s, &wire.ReplyHeader{}, nil, err)
	}
	answers, err := w.refs.receive(p, h.Messages)
	reply := &wire.ReplyHeader{}
	if err == nil {
		reply.Value, err = wire.Encode(answers)
	}
	return sv.reply(s, reply, nil, err)
}

// serveRenew says which passes of this worker's are over.
func (sv *serving) serveRenew(s transport.Stream, m *transport.Message) error {
	w := sv.w
	var h wire.RenewHeader
	reply := &wire.ReplyHeader{}
	err := wire.Decode(m.Header, &h)
	if err == nil {
		reply.Value, err = wire.Encode(w.passes.HandleRenew(h.Passes))
	}
	return sv.reply(s, reply, nil, err)
}
