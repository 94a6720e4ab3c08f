package admission

import (
	"context"
	"sync"
)

// Tally counts the work that a worker has begun: calls out and handlers in.
type Tally struct {
	work *sync.WaitGroup // counts it too, until the worker closes

	mu      sync.Mutex
	n       int
	leaving bool // calls of others are not begun any more
	closed  bool
	idle    chan struct{} // closed when no work is left; made by who waits
}

// NewTally makes a tally.
func NewTally(work *sync.WaitGroup) *Tally { return &Tally{work: work} }

// Begin counts a piece of work, which Finish ends; false when the tally is closed.
func (t *Tally) Begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.n++
	t.work.Add(1)
	return true
}

// Finish ends a piece of work.
func (t *Tally) Finish() {
	defer t.work.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Leaving says whether the worker is about to leave.
func (t *Tally) Leaving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaving
}

// Idle waits until no work is left. With leave the worker is leaving from that moment on.
func (t *Tally) Idle(c context.Context, leave bool) error {
	for {
		t.mu.Lock()
		if t.n == 0 {
			t.leaving = t.leaving || leave
			t.mu.Unlock()
			return nil
		}
		if t.idle == nil {
			t.idle = make(chan struct{})
		}
		idle := t.idle
		t.mu.Unlock()
		select {
		case <-idle:
		case <-c.Done():
			return context.Cause(c)
		}
	}
}

// Close lets no work begin any more.
func (t *Tally) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
