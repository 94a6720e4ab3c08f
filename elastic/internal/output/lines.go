package output

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/internal/printable"
)

const (
	maxLine     = 64 << 10 // a longer line is shown in pieces of this many bytes
	tailLines   = 10       // how many last lines are kept for the report of a failure
	maxTailLine = 1 << 10  // and how much of each
)

// Label stands in front of a worker's lines. Its rank may change while it runs.
type Label struct{ text atomic.Pointer[string] }

// NewLabel makes a label with a text.
func NewLabel(text string) *Label {
	l := &Label{}
	l.Set(text)
	return l
}

// Set replaces the text.
func (l *Label) Set(text string) { l.text.Store(&text) }

// Lines cuts one stream of one worker into lines and gives them to a sink. '\n', "\r\n" and '\r'
// end a line. On a terminal a line that '\r' ends, or that follows one, is a progress bar: it is
// shown as it stands and covered by the next; elsewhere it is a line like others. A Lines belongs
// to one goroutine, but for Tail.
type Lines struct {
	Sink   *Sink
	Prefix *Label
	File   *File // gets the stream as it is; nil if it is not kept
	Keep   bool  // keep the last lines for Tail
	Asks   bool  // the worker reads what somebody types: on a terminal its unfinished line may be a prompt

	buf   []byte // the unfinished line
	cr    bool   // the last byte was '\r', and the line before it still waits for what follows
	bar   bool   // the line before this one ended with '\r'
	shown int    // how much of buf is on the terminal already

	mu   sync.Mutex
	tail [][]byte
}

// Write takes the next piece of the stream. It always succeeds.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	l.File.keep(p)
	for len(p) > 0 {
		if l.cr {
			l.cr = false
			if p[0] == '\n' {
				l.finishLine(false)
				p = p[1:]
				continue
			}
			l.finishLine(true)
		}
		room := maxLine - len(l.buf)
		i := bytes.IndexAny(p, "\r\n")
		ended := i >= 0
		if !ended {
			i = len(p)
		}
		if i > room {
			l.buf = append(l.buf, p[:room]...)
			l.finishLine(false)
			p = p[room:]
			continue
		}
		l.buf = append(l.buf, p[:i]...)
		p = p[i:]
		if ended {
			if l.cr = p[0] == '\r'; !l.cr {
				l.finishLine(false)
			}
			p = p[1:]
		}
	}
	if bar := l.bar || l.cr; l.Sink.terminal && (bar || l.Asks) && len(l.buf) > l.shown {
		how := prompt
		if bar {
			how = transient
		}
		l.Sink.writeLine(*l.Prefix.text.Load(), l.buf, how)
		l.shown = len(l.buf)
	}
	return n, nil
}

// finishLine finishes the line in buf; bar says that '\r' ended it.
func (l *Lines) finishLine(bar bool) {
	how := whole
	if bar && l.Sink.terminal {
		how = transient
	}
	empty := len(l.buf) == 0
	if l.Keep && !empty {
		l.remember()
	}
	if !(bar && empty) && !(how == transient && l.shown == len(l.buf)) {
		l.Sink.writeLine(*l.Prefix.text.Load(), l.buf, how)
	}
	l.buf, l.shown, l.bar = l.buf[:0], 0, bar
}

func (l *Lines) remember() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tail) == tailLines {
		l.tail = l.tail[1:]
	}
	l.tail = append(l.tail, bytes.Clone(l.buf[:min(len(l.buf), maxTailLine)]))
}

// Close shows what is left of the last line, and ends the file. It always succeeds.
func (l *Lines) Close() error {
	if len(l.buf) > 0 {
		l.finishLine(false)
	}
	l.cr, l.bar = false, false
	l.File.Close()
	return nil
}

// Tail is the last lines so far that were not empty, for a report, without what would steer a
// terminal. Any goroutine may ask.
func (l *Lines) Tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, len(l.tail))
	for i, line := range l.tail {
		out[i] = printable.Lines(string(line), maxTailLine)
	}
	return out
}
