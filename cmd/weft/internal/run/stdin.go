package run

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// typed is what local rank 0 reads: stdin itself where it is no terminal. What is typed at one goes
// through a pipe, and only where it is asked for: a worker is not in the terminal's foreground, and
// would be stopped, and a job in the background would be, too.
func typed(stdin *os.File, terminal bool) (*os.File, error) {
	if !term.IsTerminal(int(stdin.Fd())) {
		return stdin, nil
	}
	if !terminal {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("--stdin: %w", err)
	}
	go func() { // until the end of this process, where nobody types
		_, _ = io.Copy(w, stdin)
		_ = w.Close()
	}()
	return r, nil
}
