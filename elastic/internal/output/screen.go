package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/weft-project/weft/internal/printable"
)

// maxWords bounds what the agent has said and nobody has read yet, in bytes.
const maxWords = 64 << 10

// screen is what the sinks of one Run have in common, so that no two of their lines mix on one
// terminal. Who reads the output may stop: then a worker's line waits, and stalls its worker as a
// pipe does. What the agent says never waits: it is kept, and written when its turn comes.
type screen struct {
	writing sync.Mutex // held while something is written, which may take for ever
	open    bool       // the cursor is behind a prompt
	dirty   bool       // the terminal's current row holds text that the next line has to cover

	mu     sync.Mutex // never held while something is written
	words  []word     // that the agent has said and that are not written yet
	size   int        // of words, in bytes
	lost   int        // how many words there was no room for
	coming bool       // speak is about to write words
	closed bool       // nothing more is written
}

// word is a line of the agent's.
type word struct {
	to   *Sink
	text string
}

// Sink is a writer that the lines of several workers share. Each line goes out in one Write.
type Sink struct {
	// Lost is called with an error of writing, and Unread once when nobody reads any more. They
	// must not wait; nil means that nobody asks.
	Lost   func(error)
	Unread func()

	screen   *screen
	terminal bool
	w        io.Writer
	gone     bool // nobody reads any more; held with screen.writing
}

// NewSinks are those of a Run. They have a screen each where they surely are not one terminal or
// file: then one that stalls does not stall the other.
func NewSinks(stdout, stderr io.Writer) (out, err *Sink) {
	out = &Sink{screen: &screen{}, w: stdout, terminal: isTerminal(stdout)}
	err = &Sink{screen: out.screen, w: stderr, terminal: isTerminal(stderr)}
	if out.terminal != err.terminal || !out.terminal && differ(stdout, stderr) {
		err.screen = &screen{}
	}
	return out, err
}

// Hidden shows nothing.
func Hidden() *Sink { return &Sink{screen: &screen{}, w: io.Discard} }

// Terminal says whether the sink is a terminal.
func (s *Sink) Terminal() bool { return s.terminal }

// isTerminal says whether a writer is a file that is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// differ says that two writers are two files.
func differ(a, b io.Writer) bool {
	one, isFile := a.(*os.File)
	two, areFiles := b.(*os.File)
	if !isFile || !areFiles {
		return false
	}
	oneInfo, err := one.Stat()
	if err != nil {
		return false
	}
	twoInfo, err := two.Stat()
	return err == nil && !os.SameFile(oneInfo, twoInfo)
}

// ending is how a line is left on the screen.
type ending byte

const (
	whole     ending = '\n'
	transient ending = '\r' // the cursor is at the start of its row, for the next line to cover it
	prompt    ending = 0    // the cursor is behind it; the next line covers it, unless somebody has typed
)

// writeLine writes one line of a worker, and waits until it is written. An error is remembered, and
// no more: a worker must not stall because nobody reads its output any more.
func (s *Sink) writeLine(prefix string, line []byte, how ending) {
	s.screen.writing.Lock()
	defer s.screen.writing.Unlock()
	s.screen.flush()
	s.write(prefix, line, how)
}

// Say has a line of the agent's written after what was said before it, and does not wait. Where
// there is no room, the oldest words go.
func (s *Sink) Say(text string) {
	sc := s.screen
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.closed {
		return
	}
	text = printable.Text(text, maxLine) // a part of it may be of a worker, or of another node
	sc.words, sc.size = append(sc.words, word{s, text}), sc.size+len(text)
	for sc.size > maxWords {
		sc.size -= len(sc.words[0].text)
		sc.words = sc.words[1:]
		sc.lost++
	}
	if !sc.coming {
		sc.coming = true
		go sc.speak()
	}
}

// speak writes the words when it is their turn.
func (s *screen) speak() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.coming = false // what is said from here on has a turn of its own
	s.mu.Unlock()
	s.flush()
}

// flush writes what the agent has said so far. The caller holds writing.
func (s *screen) flush() {
	s.mu.Lock()
	words, lost := s.words, s.lost
	s.words, s.size, s.lost = nil, 0, 0
	s.mu.Unlock()
	if lost > 0 {
		words[0].to.write("weft: ", fmt.Appendf(nil, "%d lines of the agent's are missing here, as nobody read them", lost), whole)
	}
	for _, w := range words {
		w.to.write("weft: ", []byte(w.text), whole)
	}
}

// write writes one line. The caller holds screen.writing.
func (s *Sink) write(prefix string, line []byte, how ending) {
	if s.gone || s.screen.over() {
		return
	}
	b := make([]byte, 0, len(prefix)+len(line)+5)
	if s.terminal && s.screen.open {
		b = append(b, '\r')
	}
	b = append(append(b, prefix...), line...)
	if s.terminal && s.screen.dirty {
		b = append(b, "\x1b[K"...) // erase what is longer than this line
	}
	if s.terminal {
		s.screen.dirty, s.screen.open = how != whole, how == prompt
	}
	if how != prompt {
		b = append(b, byte(how))
	}
	_, err := s.w.Write(b)
	if s.gone = errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe); s.gone {
		if s.Unread != nil {
			s.Unread()
		}
		return
	}
	s.report(err)
}

func (s *Sink) report(err error) {
	if err != nil && s.Lost != nil {
		s.Lost(err)
	}
}

// Drain waits until all that was said is written, and leaves the cursor of a terminal on a row of
// its own.
func (s *Sink) Drain() {
	s.screen.writing.Lock()
	defer s.screen.writing.Unlock()
	s.screen.flush()
	if s.terminal && s.screen.dirty && !s.screen.over() {
		s.screen.dirty, s.screen.open = false, false
		_, err := s.w.Write([]byte{'\n'})
		s.report(err)
	}
}

// Close drops what is not written yet, and all that comes to the sinks of one screen. One Write may
// be under way.
func (s *Sink) Close() { s.screen.discard() }

func (s *screen) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.words, s.size, s.lost = true, nil, 0, 0
}

func (s *screen) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
