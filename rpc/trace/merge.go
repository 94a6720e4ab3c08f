package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrFormat says that a file is not what NewChrome writes.
var ErrFormat = errors.New("trace: not a trace as Weft writes it")

// Input is a file to merge; Name is for errors.
type Input struct {
	Name   string
	Reader io.Reader
}

// Merged says what Merge found.
type Merged struct {
	Workers, Spans int
	Flows          int      // callers whose callee is there too
	Cut            []string // inputs that end too early, as those of killed workers do; what they hold is taken
}

// Merge writes one trace with the events of all inputs. It starts when the first of them does, and
// what the others hold is moved by as much as they start later. It fails with ErrFormat, naming
// input and event, and where two inputs hold the same span; what it wrote until then is of no use.
func Merge(out io.Writer, inputs ...Input) (Merged, error) {
	m := merger{out: bufio.NewWriter(out), pids: map[int]string{}, spans: map[string]string{}, starts: map[string]bool{}, ends: map[string]bool{}}
	var all []*reader
	for _, in := range inputs {
		r, err := m.open(in)
		if err != nil {
			return m.found, err
		}
		if r != nil {
			all = append(all, r)
		}
	}
	m.text("[")
	if len(all) > 0 {
		m.start = slices.MinFunc(all, func(a, b *reader) int { return cmp.Compare(a.start, b.start) }).start
		m.event(startEvent(m.start))
	}
	for _, r := range all {
		if err := m.file(r); err != nil {
			return m.found, err
		}
	}
	for id := range m.ends {
		if m.starts[id] {
			m.found.Flows++
		}
	}
	m.text("\n]\n")
	if m.err == nil {
		m.err = m.out.Flush()
	}
	return m.found, m.err
}

type merger struct {
	out          *bufio.Writer
	err          error
	wrote        bool
	start        int64             // of the output
	pids         map[int]string    // of the output → the input that took it
	spans        map[string]string // span → its input
	starts, ends map[string]bool   // flows
	found        Merged
}

// parsed is an event with its arguments left as they are.
type parsed struct {
	event
	Args json.RawMessage `json:"args,omitempty"`
}

// reader is an input of which all but the first event is still to be read.
type reader struct {
	Input
	*json.Decoder
	start int64 // of its trace
	read  int   // events
}

// open reads the beginning of an input. It is nil if there is nothing to be had.
func (m *merger) open(in Input) (*reader, error) {
	r := &reader{Input: in, Decoder: json.NewDecoder(in.Reader)}
	r.DisallowUnknownFields()
	if first, err := r.Token(); err != nil || first != json.Delim('[') {
		if err != nil && err != io.EOF {
			return nil, r.bad(err)
		}
		return nil, r.bad(errors.New("a JSON array must begin it"))
	}
	e, err := r.next(m)
	if e == nil {
		return nil, err
	}
	if r.start, err = startOf(e); err != nil {
		return nil, r.bad(err)
	}
	return r, nil
}

// startOf reads the event that tells a trace's start.
func startOf(e *parsed) (ns int64, err error) {
	var a startArgs
	if e.Name == startName && e.Phase == "M" && json.Unmarshal(e.Args, &a) == nil {
		ns, err = strconv.ParseInt(a.UnixNS, 10, 64)
	}
	if err != nil || a.UnixNS == "" || ns < 0 {
		return 0, fmt.Errorf("the first event should be %s, with the time as unix_ns; older versions of weft wrote none", startName)
	}
	return ns, nil
}

// next is the next event, nil after the last one.
func (r *reader) next(m *merger) (*parsed, error) {
	if !r.More() {
		return nil, r.readTail(m)
	}
	r.read++
	e := &parsed{}
	switch err := r.Decode(e); {
	case errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF:
		m.found.Cut = append(m.found.Cut, r.Name)
		return nil, nil
	case err != nil:
		return nil, r.bad(err)
	}
	return e, nil
}

// readTail reads what follows the last event.
func (r *reader) readTail(m *merger) error {
	if _, err := r.Token(); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
			m.found.Cut = append(m.found.Cut, r.Name)
			return nil
		}
		return r.bad(err)
	}
	if _, err := r.Token(); err != io.EOF {
		return r.bad(errors.New("something follows the array"))
	}
	return nil
}

func (r *reader) bad(err error) error {
	return fmt.Errorf("%w: %s, event %d: %w", ErrFormat, r.Name, r.read, err)
}

// file takes the events of an input.
func (m *merger) file(r *reader) error {
	renamed := map[int]int{}
	for {
		e, err := r.next(m)
		if e == nil {
			return err
		}
		if err = m.accept(r.Input, e, renamed); err == nil {
			err = e.move(r.start - m.start)
		}
		if err != nil {
			return r.bad(err)
		}
		if m.event(e); m.err != nil {
			return m.err
		}
	}
}

// maxMicros bounds the times in a file: a hundred years.
const maxMicros = 100 * 365 * 24 * 3600 * 1e6

// move has an event happen later by so many nanoseconds.
func (e *parsed) move(by int64) error {
	if e.TS == nil {
		return nil
	}
	end := *e.TS
	if e.Dur != nil {
		end += *e.Dur
	}
	if math.Abs(*e.TS)+math.Abs(end) > maxMicros || by > maxMicros*1000 {
		return fmt.Errorf("%q is years away from the start of the trace", e.Name)
	}
	from := micros(nanos(*e.TS) + by)
	if e.Dur != nil {
		*e.Dur = micros(nanos(end)+by) - from
	}
	*e.TS = from
	return nil
}

// accept checks an event, and gives its process a number that no other input uses.
func (m *merger) accept(in Input, e *parsed, renamed map[int]int) error {
	if e.Name == "" || !strings.Contains("MXsf", e.Phase) || len(e.Phase) != 1 {
		return fmt.Errorf("name %q and phase %q; expected a name and M, X, s or f", e.Name, e.Phase)
	}
	if e.Phase != "M" && e.TS == nil {
		return fmt.Errorf("%q has no time", e.Name)
	}
	if _, known := renamed[e.PID]; !known {
		pid := max(e.PID, 1)
		for m.pids[pid] != "" {
			pid++
		}
		m.pids[pid], renamed[e.PID] = in.Name, pid
		m.found.Workers++
	}
	e.PID = renamed[e.PID]
	switch e.Phase {
	case "s":
		m.starts[e.ID] = true
	case "f":
		m.ends[e.ID] = true
	case "X":
		m.found.Spans++
		var a spanArgs
		if err := json.Unmarshal(e.Args, &a); err != nil || a.Span == "" {
			return fmt.Errorf("%q names no span", e.Name)
		}
		if other, twice := m.spans[a.Span]; twice {
			return fmt.Errorf("span %s is in %s too: give each file once, and those of one run", a.Span, other)
		}
		m.spans[a.Span] = in.Name
	}
	return nil
}

func (m *merger) text(s string) {
	if m.err == nil {
		_, m.err = m.out.WriteString(s)
	}
}

func (m *merger) event(e any) {
	b, err := json.Marshal(e)
	if err != nil {
		m.err = err
		return
	}
	if m.wrote {
		m.text(",")
	}
	m.wrote = true
	m.text("\n" + string(b))
}
