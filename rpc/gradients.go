package rpc

import (
	"context"
	"errors"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/payload"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/transport"
)

// Gradients travel from the worker that received a message to the one that sent it.

// SendGradients tells a peer of the gradients of a message that it sent.
func (l passLinks) SendGradients(c context.Context, to ctx.WorkerID, g *ctx.GradientMessage) (err error) {
	p, err := l.peer(to)
	if err != nil {
		return err
	}
	c, cancel := l.w.deadline(c)
	if cancel != nil {
		defer cancel()
	}
	m := &transport.Message{Kind: wire.KindGradients}
	sparse, err := payload.OutgoingGradients(m, g.Grads, g.Targets)
	if err != nil {
		return err
	}
	defer m.Release()
	h := wire.GradientsHeader{
		Pass: uint64(g.Pass), Message: uint64(g.Message), Backward: uint64(g.Backward), Retain: g.Retain, Timeout: left(c), Mode: g.Mode, Anomaly: g.Anomaly, Sparse: sparse,
	}
	if g.Plan != nil {
		h.Plan = g.Plan.Append(nil)
	}
	if s := l.w.calls.trace.BeginIn(c); s != nil {
		h.Span, s.Sent = uint64(s.ID), sizeOf(m)
		defer func() {
			l.w.calls.trace.End(s, trace.Caller, tracing.SpanGradients, g.Message.String(), p.Name, g.Pass, err)
		}()
	}
	_, err = l.w.calls.askWith(c, p, m, h)
	var f *ctx.Failure // as the peer knows it; the cause is what came over the wire
	if errors.As(err, &f) {
		return f.Because(err)
	}
	return l.w.wrap(p.Name, "gradients", err)
}

// serveGradients takes the gradients of a message that this worker sent, and gives them to their
// pass.
func (sv *serving) serveGradients(c context.Context, p *membership.Peer, m *transport.Message) error {
	w := sv.w
	var h wire.GradientsHeader
	if err := wire.Decode(m.Header, &h); err != nil {
		return err
	}
	g := &ctx.GradientMessage{
		Pass: ctx.PassID(h.Pass), Message: ctx.MessageID(h.Message), Backward: ctx.BackwardID(h.Backward), Retain: h.Retain, Mode: h.Mode, Anomaly: h.Anomaly,
	}
	var err error
	if h.Plan != nil {
		if g.Plan, err = ctx.ParsePlan(h.Plan); err != nil {
			return err
		}
	}
	size := sizeOf(m)
	if g.Grads, err = payload.IncomingGradients(m, h.Sparse); err != nil {
		return err
	}
	c, cancel := within(c, h.Timeout)
	defer cancel()
	s := w.calls.trace.Begin(h.Span) // of the first of a backward it lasts as long as this worker's part of it
	if s != nil {
		s.Received = size
		c = context.WithValue(c, tracing.SpanKey{}, s.ID)
	}
	err = w.passes.HandleGradients(c, ctx.WorkerID(p.Rank), g)
	w.calls.trace.End(s, trace.Callee, tracing.SpanGradients, g.Message.String(), p.Name, g.Pass, err)
	return err
}
