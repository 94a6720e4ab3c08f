package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
)

// serveStream answers one request of a peer.
func (w *Worker) serveStream(p *peer, s transport.Stream) {
	defer s.Reset(errUnanswered) // does nothing to a stream that was ended in good order
	c := w.Context(s.Context())
	m, err := s.Recv(c, w.place)
	if err != nil {
		if !errors.Is(err, io.EOF) && s.Context().Err() == nil { // what arrived cannot be taken; the peer deserves to hear why
			err = w.reply(s, &replyHeader{}, nil, err)
		}
		s.Reset(err)
		return
	}
	defer m.Release()
	if err := w.begin(); err != nil {
		s.Reset(w.reply(s, &replyHeader{}, nil, err))
		return
	}
	defer w.finish()
	defer func() {
		if r := recover(); r != nil { // a bug of ours, which must not be a peer's weapon
			w.log.Error("a request made this worker panic", "worker", w.name, "peer", p.name, "kind", m.Kind, "panic", r, "stack", string(debug.Stack()))
			s.Reset(w.reply(s, &replyHeader{}, nil, &panicError{value: r}))
		}
	}()
	switch m.Kind {
	case kindCall:
		err = w.serveCall(c, p, s, m)
	case kindFetch:
		err = w.serveFetch(c, p, s, m)
	case kindRefs:
		err = w.serveRefs(p, s, m)
	default:
		err = w.reply(s, &replyHeader{}, nil, w.control(c, p, m))
	}
	m.Release()
	if err == nil {
		taken(s) // the peer's end, mostly there already: to reset before it costs both sides a packet and an error
	}
	s.Reset(err)
}

var errUnanswered = errors.New("the function ended its goroutine")

// control handles the requests whose answer is only whether they succeeded.
func (w *Worker) control(c context.Context, p *peer, m *transport.Message) error {
	from := ctx.WorkerID(p.rank)
	switch m.Kind {
	case kindGradients:
		var h gradientsHeader
		if err := decode(m.Header, &h); err != nil {
			return err
		}
		c, cancel := within(c, h.Timeout)
		defer cancel()
		return w.passes.HandleGradients(c, from, &ctx.GradientMessage{
			Pass: ctx.PassID(h.Pass), Message: ctx.MessageID(h.Message), Backward: ctx.BackwardID(h.Backward), Retain: h.Retain,
			Grads: transients(m),
		})
	case kindCleanup:
		var h cleanupHeader
		if err := decode(m.Header, &h); err != nil {
			return err
		}
		w.passes.HandleCleanup(c, ctx.PassID(h.Pass), from)
		return nil
	case kindLeaving:
		w.mu.Lock()
		defer w.mu.Unlock()
		p.leaving = true
		w.changedLocked()
		return nil
	}
	return fmt.Errorf("%w: kind %d is no request", ErrProtocol, m.Kind)
}

// reply answers. With an error the rest of the answer is left out. An answer that is beyond the wire's limits becomes an error.
// The work's deadline does not bound it: that the deadline has passed is what it may have to say.
func (w *Worker) reply(s transport.Stream, h *replyHeader, m *transport.Message, err error) error {
	if m == nil || err != nil {
		m = &transport.Message{}
	}
	m.Kind = kindReply
	if err != nil {
		h = &replyHeader{Err: toWire(w.name, ctx.AsTimeout(err))}
	}
	if m.Header, err = encode(h); err != nil {
		return err
	}
	err = s.Send(s.Context(), m)
	if errors.Is(err, transport.ErrFrame) && h.Err == nil && s.Context().Err() == nil {
		return errors.Join(w.reply(s, h, nil, fmt.Errorf("%w: the result: %w", ErrArguments, err)), errNotDelivered)
	}
	if err != nil {
		return err
	}
	return s.CloseSend()
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

// serveCall runs a function and answers with its result, or keeps the result for a reference.
func (w *Worker) serveCall(c context.Context, p *peer, s transport.Stream, m *transport.Message) error {
	var h callHeader
	if err := decode(m.Header, &h); err != nil {
		return w.reply(s, &replyHeader{}, nil, err)
	}
	c, done, err := w.enter(c, p, h.Pass, h.Timeout)
	if err != nil {
		return w.reply(s, &replyHeader{}, nil, err)
	}
	defer done()
	if h.Keep == nil {
		out, fn, err := w.invoke(c, p, &h, m)
		return w.answer(c, p, s, fn, out, h.Ticket, err)
	}
	if err := w.refs.serve(p, *h.Keep); err != nil {
		return w.reply(s, &replyHeader{}, nil, err)
	}
	made := errUnanswered
	var out reflect.Value
	defer func() { w.refs.made(*h.Keep, out, made) }() // also where the function ends its goroutine
	out, fn, err := w.invoke(c, p, &h, m)
	if err == nil {
		err = fn.out.check(out)
	}
	made = err
	w.refs.made(*h.Keep, out, made) // where it failed, it is dropped before the caller hears of it
	return w.reply(s, &replyHeader{}, nil, err)
}

// taken waits until the peer ends its side of the stream. It resets the stream instead when it gave up; so no deadline is
// needed.
func taken(s transport.Stream) bool {
	_, err := s.Recv(s.Context(), noTensors)
	return errors.Is(err, io.EOF)
}

// enter gives the work what was left of the caller's deadline, and places it in the caller's pass, if there is one.
func (w *Worker) enter(c context.Context, p *peer, info *passInfo, timeout time.Duration) (context.Context, func(), error) {
	c, cancel := within(c, timeout)
	if info == nil {
		return c, cancel, nil
	}
	in, leave, err := w.enterPass(c, p, info)
	if err != nil {
		cancel()
		return c, nil, err
	}
	return in, func() { leave(); cancel() }, nil
}

// enterPass finds or makes the pass of a request.
func (w *Worker) enterPass(c context.Context, p *peer, info *passInfo) (context.Context, func(), error) {
	id := ctx.PassID(info.Pass)
	if int(id.Creator()) >= w.world {
		return c, nil, fmt.Errorf("%w: pass %v in a world of %d", ErrProtocol, id, w.world)
	}
	in, _, done, err := w.passes.Enter(c, id, ctx.WorkerID(p.rank))
	if err != nil {
		return c, nil, err
	}
	if gone := w.peers[id.Creator()].lost(); gone != nil { // nobody would ever free the pass
		done()
		w.passes.PeerLost(id.Creator(), gone)
		return c, nil, fmt.Errorf("%w: the worker that opened it: %w", ctx.ErrUnknownPass, gone)
	}
	if info.NoGrad {
		in = ctx.NoGrad(in)
	}
	return in, done, nil
}

// invoke unpacks the arguments and runs the function.
func (w *Worker) invoke(c context.Context, p *peer, h *callHeader, m *transport.Message) (reflect.Value, *handler, error) {
	fn := w.serves[h.Function]
	if fn == nil {
		return reflect.Value{}, nil, fmt.Errorf("%w: %q; list it in the rpc.Config of %s", ErrNotServed, h.Function, w.name)
	}
	pass, _ := ctx.From(c)
	tensors := incoming(m, pass)
	if err := attachRecv(pass, h.Pass, p.rank, tensors); err != nil {
		return reflect.Value{}, fn, err
	}
	arg := reflect.New(fn.in.typ).Elem()
	if err := w.unpack(c, p, fn.in, h.Args, tensors, h.Refs, arg); err != nil {
		return reflect.Value{}, fn, err
	}
	out, err := fn.call(c, arg)
	var panicked *panicError
	if errors.As(err, &panicked) {
		w.log.Error("a function panicked", "worker", w.name, "function", h.Function, "caller", p.name, "panic", panicked.value, "stack", string(panicked.stack))
	}
	if err == nil && c.Err() != nil { // the result is of no use, and a pass that is gone cannot take it
		err = ctx.AsTimeout(context.Cause(c))
	}
	return out, fn, err
}

// answer packs a result and sends it.
func (w *Worker) answer(c context.Context, p *peer, s transport.Stream, fn *handler, out reflect.Value, ticket uint64, err error) error {
	h := &replyHeader{}
	if err != nil {
		return w.reply(s, h, nil, err)
	}
	var pack packing
	defer pack.unpin()
	tree, err := fn.out.pack(&pack, out, 0)
	if err == nil && len(pack.refs) > 0 && ticket == 0 {
		err = fmt.Errorf("%w: it holds references, which the caller's declaration does not", ErrArguments)
	}
	if err == nil && ticket != 0 {
		err = w.refs.answer(p, ticket)
	}
	if err == nil {
		err = pack.share(c, w, p, ticket)
	}
	if err == nil {
		h.Refs = pack.shares
		h.Value, err = encode(tree)
	}
	m := &transport.Message{}
	defer m.Release()
	if err == nil {
		err = outgoing(m, pack.tensors, func(i int) (device.ID, error) { return p.back.Target(pack.tensors[i].Device()) })
	}
	unsend := func() {}
	if err == nil {
		h.Pass, unsend, err = w.record(c, p, "the result of "+fn.name, pack.tensors)
	}
	if err != nil {
		pack.recall(w, p)
		return w.reply(s, h, nil, fmt.Errorf("result: %w", err))
	}
	if err = w.reply(s, h, m, nil); err != nil {
		unsend()
		pack.recall(w, p)
	}
	if errors.Is(err, errNotDelivered) {
		return nil
	}
	return err
}

// serveFetch answers with the value of a reference that this worker owns.
func (w *Worker) serveFetch(c context.Context, p *peer, s transport.Stream, m *transport.Message) error {
	var h fetchHeader
	if err := decode(m.Header, &h); err != nil {
		return w.reply(s, &replyHeader{}, nil, err)
	}
	c, done, err := w.enter(c, p, h.Pass, h.Timeout)
	if err != nil {
		return w.reply(s, &replyHeader{}, nil, err)
	}
	defer done()
	v, err := w.refs.value(c, h.Ref)
	if err != nil {
		return w.reply(s, &replyHeader{}, nil, err)
	}
	cd, err := codecFor(v.Type())
	return w.answer(c, p, s, &handler{name: "fetch", out: cd}, v, h.Ticket, err)
}

// serveRefs takes control messages of references.
func (w *Worker) serveRefs(p *peer, s transport.Stream, m *transport.Message) error {
	var h refsHeader
	if err := decode(m.Header, &h); err != nil {
		return w.reply(s, &replyHeader{}, nil, err)
	}
	answers, err := w.refs.receive(p, h.Messages)
	reply := &replyHeader{}
	if err == nil {
		reply.Value, err = encode(answers)
	}
	return w.reply(s, reply, nil, err)
}

// transients makes gradients of a message's tensors; the receiver must release them.
func transients(m *transport.Message) []*autodiff.Tensor {
	out := make([]*autodiff.Tensor, len(m.Tensors))
	for i, t := range m.Tensors {
		if t.Buf != nil {
			out[i] = autodiff.Transient(typeOf(t), t.Buf)
		}
	}
	m.Tensors = nil
	return out
}
