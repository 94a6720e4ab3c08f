package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/rpc/trace"
)

const (
	// TraceVariable names the folder of the traces.
	TraceVariable = "WEFT_TRACE"
	// RestartsVariable says how many failed workers the job had started again when this one was
	// started: elastic.RestartsVariable.
	RestartsVariable = "WEFT_RESTARTS"
)

// Tracer gives spans to a sink; a nil one does nothing.
type Tracer struct {
	sink    trace.Sink
	worker  string
	rank    uint64
	outcome func(error) string // a word for how something ended
	last    atomic.Uint64      // begins with the incarnation: of two lives of a worker every span is another
}

// Span is a call at one end while it lasts; nil where nobody traces.
type Span struct {
	ID, parent     trace.ID
	start          time.Time
	Sent, Received int64
}

// SpanKey is the key of a context's span: a trace.ID.
type SpanKey struct{}

// Begin begins a span.
func (t *Tracer) Begin(parent uint64) *Span {
	if t == nil {
		return nil
	}
	return &Span{ID: trace.ID(t.rank<<48 | t.last.Add(1)&(1<<48-1)), parent: trace.ID(parent), start: time.Now()}
}

// BeginIn begins the span of a call that is made under c.
func (t *Tracer) BeginIn(c context.Context) *Span {
	if t == nil {
		return nil
	}
	parent, _ := c.Value(SpanKey{}).(trace.ID)
	return t.Begin(uint64(parent))
}

// End gives the span to the sink.
func (t *Tracer) End(s *Span, side trace.Side, kind, function, peer string, pass ctx.PassID, err error) {
	if s == nil {
		return
	}
	t.sink.Span(trace.Span{
		ID: s.ID, Parent: s.parent, Side: side, Worker: t.worker, Peer: peer, Kind: kind, Function: function,
		Start: s.start, End: time.Now(), Pass: pass, Outcome: t.outcome(err), Sent: s.Sent, Received: s.Received,
	})
}

// kinds of spans.
const (
	SpanCall      = "call"
	SpanRemote    = "remote"
	SpanFetch     = "fetch"
	SpanGradients = "gradients" // of one message, from when they are sent until they are answered
	spanBackward  = "backward"  // one worker's part of it
)

// NewTracer begins to trace to a sink, or without one into the folder that the environment names;
// it is nil where there is neither. end is nil or ends what newTracer made.
func NewTracer(sink trace.Sink, worker string, rank int, epoch uint64, outcome func(error) string) (t *Tracer, end func() error, err error) {
	if dir := os.Getenv(TraceVariable); sink == nil && dir != "" {
		root, err := private.Folder(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("$%s: %w", TraceVariable, err)
		}
		f, err := root.OpenFile(fileName(worker), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err = errors.Join(err, root.Close()); err != nil {
			return nil, nil, fmt.Errorf("$%s: %w", TraceVariable, err)
		}
		chrome := trace.NewChrome(f)
		sink, end = chrome, func() error { return errors.Join(chrome.Close(), f.Close()) }
	}
	if sink != nil {
		t = &Tracer{sink: sink, worker: worker, rank: uint64(rank), outcome: outcome}
		t.last.Store(epoch)
	}
	return t, end, nil
}

// fileName is the file of a worker's trace. One that was started after a restart of the job has
// another than the worker whose place it takes: that one's trace says what went wrong.
func fileName(worker string) string {
	if restarts, err := strconv.Atoi(os.Getenv(RestartsVariable)); err == nil && restarts > 0 {
		return fmt.Sprintf("%s.restart%d.json", worker, restarts)
	}
	return worker + ".json"
}
