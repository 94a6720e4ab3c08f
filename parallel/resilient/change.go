package resilient

import (
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/collective"
)

// Change is what has become of a team.
type Change struct {
	Step    uint64   // the first that is made, or is to be made, after it
	Members []string // workers, by rank
	Lost    []string // that were members before, by their names of then
	Came    []string // one may have the name of who is lost
	// Short is how many members are missing; then the team waits for them.
	Short int
	// Again is how many rows of those who were lost this member has computed.
	Again int
	// Stood is how long it took from when this member knew of the first of the losses until the step
	// that they disturbed was made.
	Stood time.Duration
}

// Made is a step, the same on all members.
type Made struct {
	Step    uint64
	Loss    float64 // the mean over all rows
	Members int     // that had a part in its sums
}

// announce tells the program what has changed.
func (t *Team) announce() {
	t.change.Step, t.change.Members = t.m.Step(), workers(t.g)
	if t.cfg.Changed != nil {
		t.cfg.Changed(t.change)
	}
}

// meet notes the members' lives, and when an epoch begins who of the one before is lost, and who
// has come: a worker that is started again may have the name of the one before.
func (t *Team) meet(all []word) {
	now := map[string]string{}
	for rank, s := range all {
		now[s.Life] = t.g.Members()[rank].Worker
	}
	if !t.met && t.lives != nil {
		t.change.Lost = append(t.change.Lost, strangers(t.lives, now)...)
		t.change.Came = append(t.change.Came, strangers(now, t.lives)...)
		if len(t.change.Lost) > 0 && t.since.IsZero() {
			t.since = time.Now()
		}
	}
	t.lives, t.met = now, true
}

// strangers are the workers of those lives that are not among others.
func strangers(lives, others map[string]string) (names []string) {
	for life, worker := range lives {
		if _, known := others[life]; !known {
			names = append(names, worker)
		}
	}
	slices.Sort(names)
	return names
}

// without are the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// changed tells of a change once the step is made that it disturbed.
func (t *Team) changed() {
	if len(t.change.Lost) > 0 && !t.since.IsZero() {
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
