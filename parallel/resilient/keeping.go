package resilient

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// keeping is states that this member keeps for newcomers. Safe for concurrent use.
type keeping struct {
	mu     sync.Mutex
	states map[uint64]*snapshot // by the step before which they are
}

func newKeeping() *keeping { return &keeping{states: map[uint64]*snapshot{}} }

// snap keeps the state of now, unless that of the step is kept already.
func (k *keeping) snap(step uint64, now func() (*snapshot, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.states[step] != nil {
		return
	}
	if s, err := now(); err == nil { // else newcomers get it elsewhere
		s.parting = part(s)
		k.states[step] = s
	}
}

// makesStep says that a step makes the next values now: what is not copied yet has them elsewhere.
func (k *keeping) makesStep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.states {
		s.parting.settle()
	}
}

func (k *keeping) steps() []uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.states))
}

// only forgets all states but those.
func (k *keeping) only(wanted map[uint64]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.states, func(step uint64, s *snapshot) bool {
		if !wanted[step] {
			s.parting.settle()
			s.dropValues()
		}
		return !wanted[step]
	})
}

func (k *keeping) of(step uint64) *snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.states[step]
}

// parting copies the values of a snapshot that is kept, so that the next step overwrites the
// member's own as ever. A step that has to have new memory for its values takes several times as
// long; the copies are made while rows are computed. Where a step comes before they are, it has new
// memory for the rest.
type parting struct {
	stop atomic.Bool
	done chan struct{}
}

// part begins to copy what lies on the host.
func part(k *snapshot) *parting {
	p := &parting{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for i := range k.tensors {
			if !p.copy(k, i) {
				return
			}
		}
	}()
	return p
}

// copy gives a snapshot a tensor of its own. It says whether to go on.
func (p *parting) copy(k *snapshot, i int) bool {
	b, err := k.acquire(i)
	if err != nil {
		return false // who asks for it hears why
	}
	defer b.Release() //nolint:errcheck // ours
	from, err := b.Host()
	if err != nil {
		return true
	}
	to, err := device.Host().Alloc(k.entries[i].Bytes)
	if err != nil {
		return false
	}
	mem, err := to.Host()
	for at := 0; at < len(mem) && err == nil; at += piece {
		if p.stop.Load() {
			host.Release(to)
			return false
		}
		copy(mem[at:min(at+piece, len(mem))], from[at:])
	}
	k.replace(i, to)
	return true
}

// settle copies no more.
func (p *parting) settle() {
	if p != nil {
		p.stop.Store(true)
		<-p.done
	}
}
