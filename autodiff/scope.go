package autodiff

import (
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/device"
)

// scope makes an arena a short-lived part of another one, or of any: its tensors mix with those of
// the arenas around it, and what is computed from both belongs to the scope. It is freed before
// them.
type scope struct {
	outer *Arena                // nil: of any one arena that is no scope
	met   atomic.Pointer[Arena] // that arena, once its tensors were mixed with some
	pins  *pins                 // nil: none are kept
}

func newScope(label string, outer *Arena) *Arena {
	return &Arena{label: label, scope: &scope{outer: outer}}
}

// root is the arena around a that is no scope, nil where none is known yet.
func (a *Arena) root() *Arena {
	for a != nil && a.scope != nil {
		if a.scope.outer == nil {
			return a.scope.met.Load()
		}
		a = a.scope.outer
	}
	return a
}

// within says that a is o or a scope in it.
func (a *Arena) within(o *Arena) bool {
	for a != o && a != nil && a.scope != nil {
		a = a.scope.outer
	}
	return a == o
}

// mix is the owner of what is computed from tensors of two owners: the inner one. ok is false where
// they must not mix.
func mix(a, b *Arena) (inner *Arena, ok bool) {
	switch {
	case b == nil || a == b:
		return a, true
	case a == nil || b.within(a):
		return b, true
	case a.within(b):
		return a, true
	case a.meets(b):
		return a, true
	case b.meets(a):
		return b, true
	}
	return nil, false
}

// meets says that a is a scope whose tensors may be mixed with those of o, which is none.
func (a *Arena) meets(o *Arena) bool {
	if a.scope == nil || o.scope != nil {
		return false
	}
	if root := a.root(); root != nil {
		return root == o
	}
	for a.scope.outer != nil {
		a = a.scope.outer
	}
	return a.scope.met.CompareAndSwap(nil, o) || a.scope.met.Load() == o
}

// pins are the values of the parameters that a scope's computations read from outside: a second run
// is given the values of the first, also where an optimizer has stepped in between.
type pins struct {
	replay bool // take values from here, and add none

	mu sync.Mutex
	of map[*Tensor]*device.Buffer // one reference each

	drawn []uint64 // what Draw gave, in order
	again int      // how many of them a replay has given
}

// copy gives a second run what is pinned.
func (p *pins) copy() *pins {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &pins{replay: true, of: make(map[*Tensor]*device.Buffer, len(p.of)), drawn: p.drawn[:len(p.drawn):len(p.drawn)]}
	for t, b := range p.of {
		c.of[t] = b.Retain()
	}
	return c
}

func (p *pins) free() {
	p.mu.Lock()
	of := p.of
	p.of, p.replay = nil, true
	p.mu.Unlock()
	for _, b := range of {
		_ = b.Release() // the pin's own
	}
}

// acquire gives a reference to the value of t that a computation whose results belong to a is to
// read.
func (a *Arena) acquire(t *Tensor) (*device.Buffer, error) {
	if a == nil || a.scope == nil || !t.requiresGrad || t.edge.Node.Leaf() != t || t.owner == a {
		return t.acquire()
	}
	p := a.scope.pins
	if p == nil {
		return a.scope.outer.acquire(t)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.of[t]; b != nil {
		return b.Retain(), nil
	}
	b, err := a.scope.outer.acquire(t)
	if err == nil && !p.replay {
		p.of[t] = b.Retain()
	}
	return b, err
}

// Draw gives what next gives, and the same again where a [Checkpoint] computes anew what x is part
// of: a layer draws the counter of its random numbers so, and learns whether this is the first
// time. next must not compute with tensors. The function of a checkpoint must draw in the same
// order each time, as it does where it computes one thing after the other.
func Draw(x *Tensor, next func() uint64) uint64 {
	if x == nil {
		return next()
	}
	return x.owner.draw(next)
}

func (a *Arena) draw(next func() uint64) uint64 {
	if a == nil || a.scope == nil {
		return next()
	}
	p := a.scope.pins
	if p == nil {
		return a.scope.outer.draw(next)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replay {
		if p.again == len(p.drawn) {
			return next() // it draws more than the first time
		}
		p.again++
		return p.drawn[p.again-1]
	}
	v := a.scope.outer.draw(next)
	p.drawn = append(p.drawn, v)
	return v
}
