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
	"github.com/weft-project/weft/rpc/trace"
)

// traceVariable names the folder of the traces.
const traceVariable = "WEFT_TRACE"

// tracer gives spans to a sink; a nil one does nothing.
type tracer struct {
	sink    trace.Sink
	worker  string
	rank    uint64
	outcome func(error) string // a word for how something ended
	last    atomic.Uint64      // begins with the incarnation: of two lives of a worker every span is another
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
		Start: s.start, End: time.Now(), Pass: pass, Outcome: t.outcome(err), Sent: s.sent, Received: s.received,
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

// newTracer begins to trace to a sink, or without one into the folder that the environment names;
// it is nil where there is neither. end is nil or ends what newTracer made.
func newTracer(sink trace.Sink, worker string, rank int, epoch uint64, outcome func(error) string) (t *tracer, end func() error, err error) {
	if dir := os.Getenv(traceVariable); sink == nil && dir != "" {
		root, err := private.Folder(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("$%s: %w", traceVariable, err)
		}
		f, err := root.OpenFile(worker+".json", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err = errors.Join(err, root.Close()); err != nil {
			return nil, nil, fmt.Errorf("$%s: %w", traceVariable, err)
		}
		chrome := trace.NewChrome(f)
		sink, end = chrome, func() error { return errors.Join(chrome.Close(), f.Close()) }
	}
	if sink != nil {
		t = &tracer{sink: sink, worker: worker, rank: uint64(rank), outcome: outcome}
		t.last.Store(epoch)
	}
	return t, end, nil
}
