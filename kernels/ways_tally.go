package kernels

import (
	"cmp"
	"slices"
	"sync"
)

// Tally counts ways. The zero value is ready; it is safe for concurrent use.
type Tally struct {
	mu   sync.Mutex
	ways []Way
}

// Add counts work that was done once. err is the reason, where that is an error.
func (t *Tally) Add(work, by, why string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := slices.IndexFunc(t.ways, func(w Way) bool { return w.Work == work && w.By == by && w.Why == why })
	if k < 0 {
		k, t.ways = len(t.ways), append(t.ways, Way{Work: work, By: by, Why: why})
	}
	t.ways[k].Times++
	if err != nil {
		t.ways[k].Last = err.Error()
	}
}

// Ways lists them in order.
func (t *Tally) Ways() []Way {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.ways)
	slices.SortFunc(all, func(a, b Way) int {
		return cmp.Or(cmp.Compare(a.Work, b.Work), cmp.Compare(a.By, b.By), cmp.Compare(a.Why, b.Why))
	})
	return all
}
