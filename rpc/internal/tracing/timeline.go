package tracing

import (
	"context"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/trace"
)

// Observes gives the container's observer, nil where nobody traces.
func (t *Tracer) Observes() ctx.Observer {
	if t == nil {
		return nil
	}
	return passObserver{t}
}

// passObserver makes spans of backwards: one for this worker's part, and in it one for each time
// that it computed or waited.
type passObserver struct{ t *Tracer }

// Backward begins the span of a part. Its parent is that of the gradients which began it, or at the
// root of the function that did.
func (o passObserver) Backward(c context.Context, pass ctx.PassID, id ctx.BackwardID) (context.Context, ctx.Timeline) {
	s := o.t.BeginIn(c)
	return context.WithValue(c, SpanKey{}, s.ID), &passTimeline{t: o.t, s: s, pass: pass, name: id.String()}
}

// passTimeline keeps the spans of its activities until it ends, so that they come one after the
// other and are drawn in one row. Its methods are called one at a time.
type passTimeline struct {
	t    *Tracer
	s    *Span
	pass ctx.PassID
	name string
	did  []trace.Span
}

// maxDid bounds the spans that wait for the end of their part.
const maxDid = 256

// Did strips the monotonic clock's readings: one activity ends when the next begins, which two
// clocks may see differently by some nanoseconds.
func (l *passTimeline) Did(a ctx.Activity, what string, start, end time.Time) {
	s := l.t.Begin(uint64(l.s.ID))
	if len(l.did) == maxDid {
		l.flush()
	}
	l.did = append(l.did, trace.Span{
		ID: s.ID, Parent: s.parent, Side: trace.Local, Worker: l.t.worker, Kind: string(a), Function: what,
		Start: start.Round(0), End: end.Round(0), Pass: l.pass, Outcome: l.t.outcome(nil),
	})
}

func (l *passTimeline) flush() {
	for _, s := range l.did {
		l.t.sink.Span(s)
	}
	l.did = l.did[:0]
}

func (l *passTimeline) End(err error) {
	l.flush()
	l.t.End(l.s, trace.Local, spanBackward, l.name, "", l.pass, err)
}
