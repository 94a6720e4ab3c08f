package main

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// output is where a command prints. It remembers the first error, so that no command has to ask
// after each line whether it was written.
type output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

func (o *output) Write(p []byte) (int, error) {
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

// failed is the first error.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// terminal is the terminal that w writes to, nil if it is none.
func terminal(w io.Writer) *os.File {
	if o, wrapped := w.(*output); wrapped {
		w = o.w
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}
