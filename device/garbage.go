package device

import (
	"runtime"
	"sync"
)

// garbage makes the collector look in time. It does not see memory outside its heap, so it would
// let the disowned buffers there pile up: what is disowned counts here, as the heap counts there.
type garbage struct {
	mu      sync.Mutex
	held    int64 // bytes of disowned buffers that have not been returned
	base    int64 // the least that were held since the last look
	looking bool
}

// nudgeBytes is by how much the garbage must have grown at least, and half by how much of what it
// was, for another look.
const nudgeBytes = 64 << 20

func (g *garbage) grow(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held += n
	if g.looking || g.held-g.base < max(nudgeBytes, g.base/2) {
		return
	}
	g.looking = true
	go func() {
		runtime.GC()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.looking, g.base = false, g.held
	}()
}

func (g *garbage) sub(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held -= n
	g.base = min(g.base, g.held)
}

// sum is how many bytes of disowned buffers have not been returned.
func (g *garbage) sum() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}
