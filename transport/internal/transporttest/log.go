package transporttest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// LogBook keeps what is logged.
type LogBook struct {
	Told chan struct{} // gets a token for each line

	mu sync.Mutex
	b  bytes.Buffer
}

// NewLogBook makes a book and the logger that writes it.
func NewLogBook() (*LogBook, *slog.Logger) {
	l := &LogBook{Told: make(chan struct{}, 1000)}
	return l, slog.New(slog.NewTextHandler(l, nil))
}

// Write implements [io.Writer].
func (l *LogBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Told <- struct{}{}
	return l.b.Write(b)
}

// Lines gives what has been logged.
func (l *LogBook) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.b.String()), "\n")
}
