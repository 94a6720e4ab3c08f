package lane

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	courtesyTurn   = 500 * time.Microsecond
	courtesyRecent = 3 * time.Millisecond
)

// Courtesy lets others run while tensors flow. Who never has to wait keeps a processor busy, and
// the system lets it, for several milliseconds at a time: a small call would wait for so long at
// each end. So while calls come and go who moves tensors gives its turn away at every courtesyTurn;
// not else, because it costs speed. It is safe for concurrent use.
type Courtesy struct {
	calls *atomic.Uint64

	mu      sync.Mutex
	seen    uint64    // calls
	changed time.Time // when there were more
	gave    time.Time // when the last turn was given away
	given   int
}

// NewCourtesy is towards the calls that calls counts; nil: nobody is known to wait.
func NewCourtesy(calls *atomic.Uint64) *Courtesy { return &Courtesy{calls: calls} }

// Pause is for between two pieces of tensors.
func (k *Courtesy) Pause() {
	if k.due(time.Now()) {
		yieldProcessor()
	}
}

// Quiet says for how long no call has been seen.
func (k *Courtesy) Quiet(now time.Time) time.Duration {
	if k.calls == nil {
		return math.MaxInt64
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.quietLocked(now)
}

func (k *Courtesy) quietLocked(now time.Time) time.Duration {
	if n := k.calls.Load(); n != k.seen {
		k.seen, k.changed = n, now
	}
	return now.Sub(k.changed)
}

// Given says how many turns were given away.
func (k *Courtesy) Given() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.given
}

// due says whether to give a turn away now.
func (k *Courtesy) due(now time.Time) bool {
	if k.calls == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.quietLocked(now) > courtesyRecent || now.Sub(k.gave) < courtesyTurn {
		return false
	}
	k.gave = now
	k.given++
	return true
}
