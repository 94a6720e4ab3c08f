package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/transport"
)

// passLinks carries the messages of passes over a worker's links.
type passLinks struct{ w *Worker }

var _ ctx.Links = passLinks{}

func (l passLinks) Name(id ctx.WorkerID) string { return l.w.nameOf(int(id)) }

func (l passLinks) peer(id ctx.WorkerID) (*peer, error) {
	if p := l.w.peerAt(int(id)); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: rank %d", ErrUnknownWorker, id)
}

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
	sparse, err := outgoingGradients(m, g.Grads, g.Targets)
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
	if s := l.w.calls.trace.beginIn(c); s != nil {
		h.Span, s.sent = uint64(s.id), sizeOf(m)
		defer func() { l.w.calls.trace.end(s, trace.Caller, spanGradients, g.Message.String(), p.name, g.Pass, err) }()
	}
	_, err = l.w.askWith(c, p, m, h)
	var f *ctx.Failure // as the peer knows it; the cause is what came over the wire
	if errors.As(err, &f) {
		return f.Because(err)
	}
	return l.w.wrap(p.name, "gradients", err)
}

func (l passLinks) SendAbort(c context.Context, to ctx.WorkerID, f *ctx.Failure) error {
	p, err := l.peer(to)
	if err != nil {
		return err
	}
	_, err = l.w.ask(c, p, wire.KindAbort, wire.AbortHeader{Failure: *f, Err: l.w.calls.errors.toWire(f.Worker, f.Unwrap())})
	return l.w.wrap(p.name, "news of a failure", err)
}

func (l passLinks) SendCleanup(c context.Context, to ctx.WorkerID, pass ctx.PassID) error {
	p, err := l.peer(to)
	if err != nil {
		return err
	}
	_, err = l.w.ask(c, p, wire.KindCleanup, wire.CleanupHeader{Pass: uint64(pass)})
	return l.w.wrap(p.name, "clean-up", err)
}

func (l passLinks) SendRenew(c context.Context, to ctx.WorkerID, passes []ctx.PassID) (left []ctx.PassID, err error) {
	p, err := l.peer(to)
	if err != nil {
		return nil, err
	}
	reply, err := l.w.ask(c, p, wire.KindRenew, wire.RenewHeader{Passes: passes})
	if err == nil {
		err = wire.Decode(reply.Value, &left)
	}
	return left, l.w.wrap(p.name, "renewal of passes", err)
}
