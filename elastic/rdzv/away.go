package rdzv

import (
	"log/slog"
	"sync"
	"time"
)

// StoreAway and StoreBack are what a rendezvous logs, at slog.LevelWarn, when its store cannot be
// reached: with "for", the time.Duration after which it gives up, the "key" and the "err"; and when
// it is back, "after" a time.Duration.
const (
	StoreAway = "the rendezvous waits for its store"
	StoreBack = "the rendezvous' store is back"
)

// away is what a node says of its store that cannot be reached, once for all that want something of
// it. It is safe for concurrent use.
type away struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting int       // who does
	since   time.Time // the first of them
}

// begin takes it that somebody waits, for so long at most, because of err.
func (a *away) begin(patience time.Duration, key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting++; a.waiting == 1 {
		a.since = time.Now()
		a.log.Warn(StoreAway, "for", patience, "key", key, "err", err)
	}
}

// is says whether somebody waits.
func (a *away) is() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiting > 0
}

// resolve takes it that somebody waits no more, because the store is back, or else.
func (a *away) resolve(back bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting--; a.waiting == 0 && back {
		a.log.Warn(StoreBack, "after", time.Since(a.since).Round(time.Millisecond))
	}
}
