package rpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/transport"
)

// TraceVariable names a folder into which every worker without Config.Trace writes its trace, as
// NAME.json; weft run --trace sets it.
const TraceVariable = "WEFT_TRACE"

// tracer gives spans to a sink; a nil one does nothing.
type tracer struct {
	sink   trace.Sink
	worker string
	rank   uint64
	last   atomic.Uint64 // begins with the incarnation: of two lives of a worker every span is another
}

// span is a call at one end while it lasts; nil where nobody traces.
type span struct {
	id, parent     trace.ID
	start          time.Time
	sent, received int64
}

type spanKey struct{}

// begin begins a span.
func (t *tracer) begin(parent uint64) *span {
	if t == nil {
		return nil
	}
	return &span{id: trace.ID(t.rank<<48 | t.last.Add(1)&(1<<48-1)), parent: trace.ID(parent), start: time.Now()}
}

// beginIn begins the span of a call that is made under c.
func (t *tracer) beginIn(c context.Context) *span {
	if t == nil {
		return nil
	}
	parent, _ := c.Value(spanKey{}).(trace.ID)
	return t.begin(uint64(parent))
}

// end gives the span to the sink.
func (t *tracer) end(s *span, side trace.Side, kind, function, peer string, pass ctx.PassID, err error) {
	if s == nil {
		return
	}
	t.sink.Span(trace.Span{
		ID: s.id, Parent: s.parent, Side: side, Worker: t.worker, Peer: peer, Kind: kind, Function: function,
		Start: s.start, End: time.Now(), Pass: pass, Outcome: outcomeOf(err).String(), Sent: s.sent, Received: s.received,
	})
}

// kinds of spans.
const (
	spanCall      = "call"
	spanRemote    = "remote"
	spanFetch     = "fetch"
	spanGradients = "gradients" // of one message, from when they are sent until they are answered
	spanBackward  = "backward"  // one worker's part of it
)

// endSpan ends the caller's span.
func (o *outbound) endSpan(err error) {
	if o.span == nil {
		return
	}
	kind, function, to := spanCall, o.what, ""
	switch {
	case o.m.Kind == wire.KindFetch:
		kind, function = spanFetch, ""
	case o.h.Ref != nil:
		kind = spanRemote
	}
	if o.p != nil {
		to = o.p.name
	}
	pass, _ := ctx.From(o.c)
	var id ctx.PassID
	if pass != nil {
		id = pass.ID()
	}
	o.w.calls.trace.end(o.span, trace.Caller, kind, function, to, id, err)
}

// endSpan ends the callee's span.
func (in *inbound) endSpan() {
	kind := spanCall
	if in.h.Ref != nil {
		kind = spanRemote
	}
	in.w.calls.trace.end(in.span, trace.Callee, kind, in.h.Function, in.p.name, in.h.PassID(), in.err)
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

// startTrace begins to trace. Without Config.Trace the environment decides.
func (w *Worker) startTrace(sink trace.Sink) error {
	if dir := os.Getenv(TraceVariable); sink == nil && dir != "" {
		root, err := private.Folder(dir)
		if err != nil {
			return fmt.Errorf("$%s: %w", TraceVariable, err)
		}
		f, err := root.OpenFile(w.name+".json", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err = errors.Join(err, root.Close()); err != nil {
			return fmt.Errorf("$%s: %w", TraceVariable, err)
		}
		chrome := trace.NewChrome(f)
		sink, w.endTrace = chrome, func() error { return errors.Join(chrome.Close(), f.Close()) }
	}
	if sink != nil {
		w.calls.trace = &tracer{sink: sink, worker: w.name, rank: uint64(w.rank)}
		w.calls.trace.last.Store(w.epoch)
	}
	return nil
}
