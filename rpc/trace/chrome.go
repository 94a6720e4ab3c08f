package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxWaiting bounds the spans that wait to be written.
const maxWaiting = 8192

// Chrome writes spans as a JSON array of Chrome trace events. Each worker is a process; its spans lie on as many threads as it
// takes that none hides another.
type Chrome struct {
	out    *bufio.Writer
	spans  chan Span
	done   chan struct{} // closed when all is written
	layout map[int]*layout
	wrote  bool  // an event
	err    error // the first of writing; read after done

	mu      sync.Mutex
	closed  bool
	dropped int
}

// NewChrome makes a sink that writes to w on a goroutine of its own, until Close.
func NewChrome(w io.Writer) *Chrome {
	t := &Chrome{out: bufio.NewWriterSize(w, 64<<10), spans: make(chan Span, maxWaiting), done: make(chan struct{}), layout: map[int]*layout{}}
	go t.run()
	return t
}

// Span takes a span. It drops it where more wait than the writer keeps up with, or the sink is closed.
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

// Close writes what waits, and says what went wrong: the first error of writing, and how many spans were dropped. It does not close
// the writer. A second Close does nothing.
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

func (t *Chrome) run() {
	defer close(t.done)
	t.text("[")
	for s := range t.spans {
		t.write(s)
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
	Name  string      `json:"name"`
	Cat   string      `json:"cat,omitempty"`
	Phase string      `json:"ph"`
	TS    json.Number `json:"ts,omitempty"`
	Dur   json.Number `json:"dur,omitempty"`
	PID   int         `json:"pid"`
	TID   int         `json:"tid"`
	ID    string      `json:"id,omitempty"` // of a flow
	Bind  string      `json:"bp,omitempty"` // "e": a flow ends at the slice around it
	Args  any         `json:"args,omitempty"`
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

// flow is the name and the category of the arrows from caller to callee: Chrome pairs them by both and the id.
const flow = "rpc"

func (t *Chrome) write(s Span) {
	pid := s.ID.worker() + 1 // Perfetto takes 0 for the idle process
	l := t.layout[pid]
	if l == nil {
		l = &layout{}
		t.layout[pid] = l
		t.event(event{Name: "process_name", Phase: "M", PID: pid, Args: nameArgs{s.Worker}})
	}
	start, dur := micros(s.Start.UnixNano()), max(s.End.Sub(s.Start), 0)
	tid, fresh := l.place(interval{s.ID, s.Parent, s.Start.UnixNano(), s.Start.UnixNano() + int64(dur)})
	if fresh {
		t.event(event{Name: "thread_name", Phase: "M", PID: pid, TID: tid, Args: nameArgs{fmt.Sprintf("calls %d", tid)}})
	}
	t.event(event{Name: title(s), Cat: s.Side.String(), Phase: "X", TS: start, Dur: micros(int64(dur)), PID: pid, TID: tid, Args: argsOf(s)})
	switch {
	case s.Side == Caller:
		t.event(event{Name: flow, Cat: flow, Phase: "s", TS: start, PID: pid, TID: tid, ID: s.ID.String()})
	case s.Side == Callee && s.Parent != 0:
		t.event(event{Name: flow, Cat: flow, Phase: "f", Bind: "e", TS: start, PID: pid, TID: tid, ID: s.Parent.String()})
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

// micros prints nanoseconds as microseconds, exactly: a float64 of a time since 1970 would lose the nanoseconds.
func micros(ns int64) json.Number {
	us, rest := ns/int64(time.Microsecond), ns%int64(time.Microsecond)
	return json.Number(fmt.Sprintf("%d.%03d", us, rest))
}
