package resilient

import (
	"sync"
	"time"

	"github.com/weft-project/weft/collective"
)

// announce tells the program what has changed.
func (t *Team) announce() {
	t.change.Step, t.change.Members = t.m.Step(), workers(t.g)
	if t.cfg.Changed != nil {
		t.cfg.Changed(t.change)
	}
}

// changed tells of a change once the step is made that it disturbed.
func (t *Team) changed() {
	if !t.since.IsZero() {
		t.change.Stood = time.Since(t.since)
	}
	if len(t.change.Lost) > 0 || len(t.change.Came) > 0 {
		t.announce()
	}
	t.change, t.since = Change{}, time.Time{}
}

// knowing is when a group has ended.
type knowing struct {
	mu sync.Mutex
	at time.Time
}

func know(g *collective.Group) *knowing {
	k := new(knowing)
	go func() {
		<-g.Done() // closed at the latest with the team, or by the next generation
		k.mu.Lock()
		defer k.mu.Unlock()
		k.at = time.Now()
	}()
	return k
}

func (k *knowing) when() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() {
		return time.Now()
	}
	return k.at
}
