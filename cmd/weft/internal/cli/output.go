package cli

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Output is where a command prints. It remembers the first error, so that no command has to ask
// after each line whether it was written.
type Output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

// NewOutput is an output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// Failed is the first error.
func (o *Output) Failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Terminal is the terminal that w writes to, nil if it is none.
func Terminal(w io.Writer) *os.File {
	if o, wrapped := w.(*Output); wrapped {
		w = o.w
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}
