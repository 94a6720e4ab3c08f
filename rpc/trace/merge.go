package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Merge writes one trace with the events of all inputs. It fails with ErrFormat, naming input and event, and where two inputs hold
// the same span; what it wrote until then is of no use.
func Merge(out io.Writer, inputs ...Input) (Merged, error) {
	m := merger{out: bufio.NewWriter(out), pids: map[int]string{}, spans: map[string]string{}, starts: map[string]bool{}, ends: map[string]bool{}}
	for _, in := range inputs {
		if err := m.file(in); err != nil {
			return m.found, err
		}
	}
	for id := range m.ends {
		if m.starts[id] {
			m.found.Flows++
		}
	}
	if m.wrote == 0 {
		m.text("[")
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
	wrote        int
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

func (m *merger) file(in Input) error {
	d := json.NewDecoder(in.Reader)
	d.DisallowUnknownFields()
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		if err != nil && err != io.EOF {
			return m.bad(in, 0, err)
		}
		return m.bad(in, 0, errors.New("a JSON array must begin it"))
	}
	renamed := map[int]int{}
	n := 0
	for d.More() {
		n++
		var e parsed
		err := d.Decode(&e)
		if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
			m.found.Cut = append(m.found.Cut, in.Name)
			return m.err
		}
		if err == nil {
			err = m.take(in, &e, renamed)
		}
		if err != nil {
			return m.bad(in, n, err)
		}
		if m.event(&e); m.err != nil {
			return m.err
		}
	}
	if _, err := d.Token(); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
			m.found.Cut = append(m.found.Cut, in.Name)
			return nil
		}
		return m.bad(in, n, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return m.bad(in, n, errors.New("something follows the array"))
	}
	return nil
}

func (m *merger) bad(in Input, event int, err error) error {
	return fmt.Errorf("%w: %s, event %d: %w", ErrFormat, in.Name, event, err)
}

// take checks an event, and gives its process a number that no other input uses.
func (m *merger) take(in Input, e *parsed, renamed map[int]int) error {
	if e.Name == "" || !strings.Contains("MXsf", e.Phase) || len(e.Phase) != 1 {
		return fmt.Errorf("name %q and phase %q; expected a name and M, X, s or f", e.Name, e.Phase)
	}
	if e.Phase != "M" && e.TS == "" {
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

func (m *merger) event(e *parsed) {
	b, err := json.Marshal(e)
	if err != nil {
		m.err = err
		return
	}
	m.text([]string{"[\n", ",\n"}[min(m.wrote, 1)])
	m.wrote++
	m.text(string(b))
}
