package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/weft-project/weft/internal/printable"
)

// What is kept of a step, however much it prints.
const (
	told      = 6000     // bytes of its text in the results
	heldEach  = 64 << 10 // bytes of its text, at the beginning and at the end, to choose from
	mostLine  = 8 << 10  // bytes of a line of JSON; a longer one is text
	mostLines = 64 << 10 // bytes of all lines of JSON
)

// said is what a step prints. Only its beginning and its end are held. Its methods are safe for
// concurrent use.
type said struct {
	mu         sync.Mutex
	head, tail []byte
	lost       int // bytes between the two
	lines      []map[string]any
	size       int // of the lines
}

// text takes text.
func (s *said) text(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(b), heldEach-len(s.head))
	s.head = append(s.head, b[:n]...)
	s.tail = append(s.tail, b[n:]...)
	if len(s.tail) > 4*heldEach {
		s.trim()
	}
}

// trim leaves of the tail what is held of it.
func (s *said) trim() {
	if over := len(s.tail) - heldEach; over > 0 {
		s.lost += over
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
}

// line takes a line of JSON with a case, and says whether it is one and there is room for it.
func (s *said) line(b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l map[string]any
	if len(b) > mostLine || s.size+len(b) > mostLines || json.Unmarshal(b, &l) != nil || l["case"] == nil {
		return false
	}
	s.lines, s.size = append(s.lines, l), s.size+len(b)
	return true
}

// has says that a line is in the text, and not long before its end.
func (s *said) has(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "\n" + string(s.tail)
	if len(s.tail) < heldEach {
		text = "\n" + string(s.head) + string(s.tail)
	}
	return strings.Contains(text+"\n", "\n"+line+"\n")
}

// String is what a reader needs of the text.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trim(); s.lost == 0 {
		return end(string(s.head) + string(s.tail))
	}
	return end(fmt.Sprintf("%s\n… %d bytes …\n%s", s.head, s.lost, s.tail))
}

// end is what of a text says why something failed: of a Go test, from what failed on. Of a long one
// the middle is left out: a crash says at its beginning what it is, and most others at their end.
func end(s string) string {
	if at := strings.Index(s, "--- FAIL"); at >= 0 {
		s = s[at:]
	}
	if len(s) > told {
		s = unwound(s)
	}
	if len(s) > told {
		s = s[:told/2] + "\n…\n" + s[len(s)-told/2:]
	}
	return strings.TrimSpace(printable.Lines(s, 2*told))
}

// unwound is a text in which Go's stacks have but the functions that are not Go's own, as where a
// program hangs is to fit.
func unwound(s string) string {
	at := strings.Index(s, "\ngoroutine ")
	if at < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:at])
	for line := range strings.Lines(s[at:]) {
		if !gos.MatchString(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// gos are lines of a stack: places in files, functions of Go's own, who began a goroutine, and
// registers.
var gos = regexp.MustCompile(`^(\t|(runtime|syscall|internal/[a-z/]+|os|io|sync|time|testing)[./(]|created by |\[originating|[a-z0-9]+ +0x|$)`)

// splitter takes text apart into lines of JSON and other text.
type splitter struct {
	to   *said
	part []byte // of a line that may be JSON
}

// Write is io.Writer's.
func (w *splitter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if len(w.part) == 0 && b[0] != '{' {
			at := bytes.Index(b, []byte("\n{")) + 1
			if at == 0 {
				at = len(b)
			}
			w.to.text(b[:at])
			b = b[at:]
			continue
		}
		at := bytes.IndexByte(b, '\n') + 1
		whole := at > 0
		if !whole {
			at = len(b)
		}
		w.part = append(w.part, b[:at]...)
		if b = b[at:]; whole || len(w.part) > mostLine {
			w.flush()
		}
	}
	return n, nil
}

// flush takes the last line too, which has no end.
func (w *splitter) flush() {
	if len(w.part) > 0 && !w.to.line(w.part) {
		w.to.text(w.part)
	}
	w.part = w.part[:0]
}

// textWriter writes text to what a step said.
type textWriter struct{ to *said }

// Write is io.Writer's.
func (w textWriter) Write(b []byte) (int, error) {
	w.to.text(b)
	return len(b), nil
}
