package elastic

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

const (
	maxLine     = 64 << 10 // a longer line is shown in pieces of this many bytes
	tailLines   = 10       // how many last lines are kept for the report of a failure
	maxTailLine = 1 << 10  // and how much of each
)

// screen is what the sinks of one Run have in common, so that no two of their lines mix on one terminal.
type screen struct {
	mu    sync.Mutex
	dirty bool // the terminal's current row holds text that the next line has to cover
}

// sink is a writer that the lines of several workers share. Each line goes out in one Write.
type sink struct {
	screen   *screen
	terminal bool
	w        io.Writer
}

// put writes one line. A transient one leaves the cursor at the start of its row, for the next line to cover it.
// Errors are dropped: a worker must not stall because nobody reads its output.
func (s *sink) put(prefix string, line []byte, transient bool) {
	s.screen.mu.Lock()
	defer s.screen.mu.Unlock()
	b := make([]byte, 0, len(prefix)+len(line)+4)
	b = append(append(b, prefix...), line...)
	if s.terminal && s.screen.dirty {
		b = append(b, "\x1b[K"...) // erase what is longer than this line
	}
	if s.terminal {
		s.screen.dirty = transient
	}
	if transient {
		b = append(b, '\r')
	} else {
		b = append(b, '\n')
	}
	_, _ = s.w.Write(b)
}

// settle leaves the cursor of a terminal on a row of its own.
func (s *sink) settle() {
	s.screen.mu.Lock()
	defer s.screen.mu.Unlock()
	if s.terminal && s.screen.dirty {
		s.screen.dirty = false
		_, _ = s.w.Write([]byte{'\n'})
	}
}

// label stands in front of a worker's lines. Its rank may change while it runs.
type label struct{ text atomic.Pointer[string] }

func newLabel(text string) *label {
	l := &label{}
	l.set(text)
	return l
}

func (l *label) set(text string) { l.text.Store(&text) }

// lines cuts one stream of one worker into lines and gives them to a sink. '\n', "\r\n" and '\r' end a line. On a
// terminal a line that '\r' ends, or that follows one, is a progress bar: it is shown as it stands and covered by the
// next; elsewhere it is a line like others. A lines belongs to one goroutine.
type lines struct {
	sink   *sink
	prefix *label
	file   *keeper // gets the stream as it is; nil if it is not kept
	buf    []byte  // the unfinished line
	cr     bool    // the last byte was '\r', and the line before it still waits for what follows
	bar    bool    // the line before this one ended with '\r'
	shown  int     // how much of buf is on the terminal already
	tail   [][]byte
	keep   bool // keep the last lines in tail
}

// Write takes the next piece of the stream. It always succeeds.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	l.file.keep(p)
	for len(p) > 0 {
		if l.cr {
			l.cr = false
			if p[0] == '\n' {
				l.end(false)
				p = p[1:]
				continue
			}
			l.end(true)
		}
		room := maxLine - len(l.buf)
		i := bytes.IndexAny(p, "\r\n")
		ended := i >= 0
		if !ended {
			i = len(p)
		}
		if i > room {
			l.buf = append(l.buf, p[:room]...)
			l.end(false)
			p = p[room:]
			continue
		}
		l.buf = append(l.buf, p[:i]...)
		p = p[i:]
		if ended {
			if l.cr = p[0] == '\r'; !l.cr {
				l.end(false)
			}
			p = p[1:]
		}
	}
	if l.sink.terminal && (l.bar || l.cr) && len(l.buf) > l.shown {
		l.sink.put(*l.prefix.text.Load(), l.buf, true)
		l.shown = len(l.buf)
	}
	return n, nil
}

// end finishes the line in buf; bar says that '\r' ended it.
func (l *lines) end(bar bool) {
	transient := bar && l.sink.terminal
	empty := len(l.buf) == 0
	if !(bar && empty) && !(transient && l.shown == len(l.buf)) {
		l.sink.put(*l.prefix.text.Load(), l.buf, transient)
	}
	if l.keep && !empty {
		if len(l.tail) == tailLines {
			l.tail = l.tail[1:]
		}
		l.tail = append(l.tail, bytes.Clone(l.buf[:min(len(l.buf), maxTailLine)]))
	}
	l.buf, l.shown, l.bar = l.buf[:0], 0, bar
}

// Close shows what is left of the last line, and ends the file.
func (l *lines) Close() {
	if len(l.buf) > 0 {
		l.end(false)
	}
	l.cr, l.bar = false, false
	l.file.Close()
}

// Tail is the last lines that were not empty, for a report.
func (l *lines) Tail() []string {
	out := make([]string, len(l.tail))
	for i, line := range l.tail {
		out[i] = string(line)
	}
	return out
}
