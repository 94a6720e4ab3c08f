package storecrash

import (
	"context"
	"log/slog"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/journal"
)

func TestMain(m *testing.M) {
	signal.Ignore(syscall.SIGXFSZ) // a write beyond RLIMIT_FSIZE should only fail
	var here host
	proctest.Main(m, map[string]proctest.Command{
		"serve":       proctest.Do(here.serve),
		"waiters":     proctest.Do(func(context.Context, struct{}) (int, error) { return here.s.Stats().Waiters, nil }),
		"compactions": proctest.Do(here.compactions),
	})
}

// place is where a server listens and what it keeps.
type place struct {
	Addr, Path string
	Sync       journal.Policy
	Room       uint64 // bytes that a file may have; 0: as many as there is room for
}

// host is the server of another process.
type host struct {
	s   *store.Server
	mu  sync.Mutex
	log strings.Builder
}

func (h *host) serve(_ context.Context, p place) (addr string, err error) {
	if p.Room > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: p.Room, Max: p.Room}); err != nil {
			return "", err
		}
	}
	h.s, err = store.Serve(store.ServerConfig{Addr: p.Addr, Logger: slog.New(slog.NewTextHandler(h, nil)),
		Journal: store.JournalConfig{Path: p.Path, Sync: p.Sync, Growth: 1}})
	if err != nil {
		return "", err
	}
	return h.s.Addr(), nil
}

// Write takes the log.
func (h *host) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(b)
}

func (h *host) compactions(context.Context, struct{}) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.log.String(), "has compacted"), nil
}
