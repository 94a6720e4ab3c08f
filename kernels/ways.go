package kernels

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
)

// Way is how a backend did a kind of work, and how often.
type Way struct {
	Work  string // the work: "product"
	By    string // what did it: "library"
	Why   string // why nothing better did; empty where there is nothing better. There are few different texts
	Last  string // the error that was the reason last, if there was one
	Times int64
}

// Surveyor is a [Backend] that counts the ways in which it works: a GPU's, of package kernels/gpu.
type Surveyor interface {
	// Ways lists them in order of Work, By and Why.
	Ways() []Way
}

// Ways says how the backend of a device has worked; nil where it does not count.
func Ways(d device.Device) []Way {
	b, err := For(d)
	if s, ok := b.(Surveyor); ok && err == nil {
		return s.Ways()
	}
	return nil
}

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
