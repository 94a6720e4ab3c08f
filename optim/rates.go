package optim

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/weft-project/weft/kernels"
)

// rates are an optimizer's learning rates: each group's own, times what the schedule says now. A
// step uses those that are in force when it is called, on all owners and for all parameters. Safe
// for concurrent use.
type rates struct {
	mu       sync.Mutex
	base     []float64
	schedule Schedule // nil: constant
	advanced int
}

func (r *rates) reset(groups []kernels.Update) {
	for _, u := range groups {
		r.base = append(r.base, u.LR)
	}
}

// LR lists the learning rates in force, one per group.
func (r *rates) LR() []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := slices.Clone(r.base)
	if r.schedule != nil {
		factor := r.schedule(r.advanced)
		for i := range now {
			now[i] *= factor
		}
	}
	return now
}

// SetLR sets the learning rate of some groups, or without groups of all, for the steps that are
// called from now on. A schedule's factor comes on top.
func (r *rates) SetLR(lr float64, groups ...int) error {
	if !(lr >= 0 && lr < math.Inf(1)) {
		return fmt.Errorf("%w: learning rate %g; expected 0 or more", ErrRule, lr)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range groups {
		if g < 0 || g >= len(r.base) {
			return fmt.Errorf("%w: no group %d; there are %d", ErrRule, g, len(r.base))
		}
	}
	for g := range r.base {
		if len(groups) == 0 || slices.Contains(groups, g) {
			r.base[g] = lr
		}
	}
	return nil
}

// SetSchedule multiplies all learning rates by what the schedule says; nil ends that. It goes on
// where the calls of Advance have come to: at 0 for a new optimizer, and where it was for one whose
// state was loaded. The schedule is called under a lock.
func (r *rates) SetSchedule(s Schedule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule = s
}

// Advance takes the schedule one further, after a step or an epoch as its numbers are meant.
func (r *rates) Advance() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advanced++
}

// saved are the groups' own rates, and how far the schedule is.
func (r *rates) saved() ([]float64, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.base), r.advanced
}

func (r *rates) restore(base []float64, advanced int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base, r.advanced = base, advanced
}
