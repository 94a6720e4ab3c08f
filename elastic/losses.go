package elastic

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// ErrOutput is matched by Run's error where all workers have ended well, but something that they wrote could not be written.
var ErrOutput = errors.New("output was lost")

// losses remembers the first output of a Run that could not be written.
type losses struct {
	mu    sync.Mutex
	first error
}

// add takes an error of writing what is named. That nobody reads any more is no loss: see ErrNoReader.
func (l *losses) add(what string, err error) {
	if l == nil || err == nil || errors.Is(err, syscall.EPIPE) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = fmt.Errorf("elastic: %w: %s: %w", ErrOutput, what, err)
	}
}

func (l *losses) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}
