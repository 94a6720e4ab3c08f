package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"
)

// maxWaiting bounds the spans that wait to be written.
const maxWaiting = 8192

// Chrome writes spans as a JSON array of Chrome trace events. Each worker is a process; its spans
// lie on as many threads as it takes that none hides another. Times count from the trace's start,
// which the first event tells.
type Chrome struct {
	out    *bufio.Writer
	start  int64 // of the trace, in nanoseconds since 1970
	spans  chan Span
	done   chan struct{} // closed when all is written
	layout map[int]*layout
	wrote  bool  // an event
	err    error // the first of writing; read after done

	mu      sync.Mutex
	closed  bool
	dropped int
}

// NewChrome makes a sink that writes to w on a goroutine of its own, until Close. The trace starts
// now.
func NewChrome(w io.Writer) *Chrome { return newChrome(w, time.Now()) }

func newChrome(w io.Writer, start time.Time) *Chrome {
	t := &Chrome{
		out: bufio.NewWriterSize(w, 64<<10), start: start.UnixNano(),
		spans: make(chan Span, maxWaiting), done: make(chan struct{}), layout: map[int]*layout{},
	}
	go t.writeLoop()
	return t
}

// Span takes a span. It drops it where more wait than the writer keeps up with, or the sink is
// closed.
func (t *Chrome) Span(s Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	select {
	case t.spans <- s:
	default:
		t.dropped++
	}
}

// Close writes what waits, and says what went wrong: the first error of writing, and how many spans
// were dropped. It does not close the writer. A second Close does nothing.
func (t *Chrome) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	close(t.spans)
	dropped := t.dropped
	t.mu.Unlock()
	<-t.done
	switch {
	case t.err != nil:
		return fmt.Errorf("trace: write: %w", t.err)
	case dropped > 0:
		return fmt.Errorf("trace: %d spans were dropped, as they came faster than they could be written", dropped)
	}
	return nil
}

func (t *Chrome) writeLoop() {
	defer close(t.done)
	t.text("[")
	t.event(startEvent(t.start))
	for s := range t.spans {
		t.writeSpan(s)
		if len(t.spans) == 0 && t.err == nil { // idle: a process that is killed leaves what it has done
			t.err = t.out.Flush()
		}
	}
	t.text("\n]\n")
	if t.err == nil {
		t.err = t.out.Flush()
	}
}

func (t *Chrome) text(s string) {
	if t.err == nil {
		_, t.err = t.out.WriteString(s)
	}
}

// event is one of Chrome's trace events. Times are in microseconds.
type event struct {
	Name  string   `json:"name"`
	Cat   string   `json:"cat,omitempty"`
	Phase string   `json:"ph"`
	TS    *float64 `json:"ts,omitempty"`
	Dur   *float64 `json:"dur,omitempty"`
	PID   int      `json:"pid"`
	TID   int      `json:"tid"`
	ID    string   `json:"id,omitempty"` // of a flow
	Bind  string   `json:"bp,omitempty"` // "e": a flow ends at the slice around it
	Args  any      `json:"args,omitempty"`
}

// startName is the name of the first event, which tells when the trace starts. Viewers pass over
// it.
const startName = "trace_start"

// startArgs has the start as text: no float64 holds the nanoseconds since 1970.
type startArgs struct {
	UnixNS string `json:"unix_ns"`
}

func startEvent(ns int64) event {
	return event{Name: startName, Phase: "M", Args: startArgs{strconv.FormatInt(ns, 10)}}
}

type nameArgs struct {
	Name string `json:"name"`
}

type spanArgs struct {
	Span     string `json:"span"`
	Parent   string `json:"parent,omitempty"`
	Side     string `json:"side"`
	Peer     string `json:"peer"`
	Outcome  string `json:"outcome"`
	Pass     string `json:"pass,omitempty"`
	Sent     int64  `json:"sent"`
	Received int64  `json:"received"`
}

// flow is the name and the category of the arrows from caller to callee: Chrome pairs them by both
// and the id.
const flow = "rpc"

func (t *Chrome) writeSpan(s Span) {
	pid := s.ID.worker() + 1 // Perfetto takes 0 for the idle process
	l := t.layout[pid]
	if l == nil {
		l = &layout{}
		t.layout[pid] = l
		t.event(event{Name: "process_name", Phase: "M", PID: pid, Args: nameArgs{s.Worker}})
	}
	from := s.Start.UnixNano()
	to := from + int64(max(s.End.Sub(s.Start), 0))
	tid, fresh := l.assign(interval{s.ID, s.Parent, from, to})
	if fresh {
		t.event(event{Name: "thread_name", Phase: "M", PID: pid, TID: tid, Args: nameArgs{fmt.Sprintf("calls %d", tid)}})
	}
	start, end := micros(from-t.start), micros(to-t.start)
	dur := end - start
	t.event(event{Name: title(s), Cat: s.Side.String(), Phase: "X", TS: &start, Dur: &dur, PID: pid, TID: tid, Args: argsOf(s)})
	switch {
	case s.Side == Caller:
		t.event(event{Name: flow, Cat: flow, Phase: "s", TS: &start, PID: pid, TID: tid, ID: s.ID.String()})
	case s.Side == Callee && s.Parent != 0:
		t.event(event{Name: flow, Cat: flow, Phase: "f", Bind: "e", TS: &start, PID: pid, TID: tid, ID: s.Parent.String()})
	}
}

func title(s Span) string {
	switch {
	case s.Function == "":
		return s.Kind
	case s.Kind == "call":
		return s.Function
	}
	return s.Kind + " " + s.Function
}

func argsOf(s Span) spanArgs {
	a := spanArgs{Span: s.ID.String(), Side: s.Side.String(), Peer: s.Peer, Outcome: s.Outcome, Sent: s.Sent, Received: s.Received}
	if s.Parent != 0 {
		a.Parent = s.Parent.String()
	}
	if s.Pass != 0 {
		a.Pass = s.Pass.String()
	}
	return a
}

func (t *Chrome) event(e event) {
	if t.err != nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		t.err = err
		return
	}
	if t.wrote {
		t.text(",")
	}
	t.wrote = true
	t.text("\n")
	if t.err == nil {
		_, t.err = t.out.Write(b)
	}
}

// ticks is of how many parts of a microsecond times in a file are multiples: less than a nanosecond
// each, and a power of two. A float64 holds such a time exactly for 100 days, and the sum of two,
// so that what begins when another ends does so for every reader.
const ticks = 1024

// micros is a time of so many nanoseconds in microseconds, to the nearest tick.
func micros(ns int64) float64 { return float64(scaled(ns, ticks, 1000)) / ticks }

// nanos is micros turned back.
func nanos(us float64) int64 { return scaled(int64(math.Round(us*ticks)), 1000, ticks) }

// scaled is n*by/per, rounded, where n*by may be too large.
func scaled(n, by, per int64) int64 {
	return n/per*by + int64(math.Round(float64(n%per*by)/float64(per)))
}
