package autodiff

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/device"
)

// Arena owns tensors and frees them together: a pass has one. Tensors computed from an arena's
// tensors join it. Safe for concurrent use, also Free while computations are under way: they finish
// or fail with ErrFreed, and leave nothing.
type Arena struct {
	label string
	scope *scope // nil for an arena of its own
	pass  bool   // it is a pass's
	outer *Arena // of the pass inside whose function this one was opened
	timed bool   // the calls of its tensors are

	made   [12]uintptr // the stack where it was made, of an arena that is no pass's
	frames int

	mu    sync.Mutex
	owned []freer
	bytes int64
	freed bool
}

// freer is a tensor, or a node of the tape that keeps values for the backward.
type freer interface{ free() }

// NewArena makes an arena; label names it in errors.
func NewArena(label string) *Arena {
	a := &Arena{label: label}
	a.capture()
	return a
}

// passLabel begins the labels of passes.
const passLabel = "pass "

// NewPassArena makes the arena of a pass; package ctx does. outer is that of the pass inside whose
// function it was opened, or nil.
func NewPassArena(id string, outer *Arena) *Arena {
	return &Arena{label: passLabel + id, pass: true, outer: outer}
}

// String is the label.
func (a *Arena) String() string { return a.label }

// adopt puts something under the arena's ownership. It fails with ErrFreed, and then owns nothing.
func (a *Arena) adopt(f freer, bytes int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.freed {
		return a.freedError("", "")
	}
	if a.owned == nil {
		a.owned = make([]freer, 0, 16)
	}
	a.owned = append(a.owned, f)
	a.bytes += int64(bytes)
	return nil
}

// Adopt moves a tensor that belongs to nobody into the arena, which frees it. Only its maker may do
// that.
func (a *Arena) Adopt(t *Tensor) error {
	if err := t.Err(); err != nil {
		return opError("Adopt", err)
	}
	if t.owner == a {
		return nil
	}
	if t.owner != nil {
		return opError("Adopt", t.mixed(a, false))
	}
	if err := a.adopt(t, t.held()); err != nil {
		return opError("Adopt", err)
	}
	t.owner = a
	return nil
}

// Bytes is what the arena's tensors hold, as far as they are values of their own and not yet freed.
func (a *Arena) Bytes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes
}

// Free releases everything at once. Later uses of its tensors fail with ErrFreed. Idempotent.
func (a *Arena) Free() {
	a.mu.Lock()
	owned := a.owned
	a.owned, a.bytes, a.freed = nil, 0, true
	a.mu.Unlock()
	for _, f := range owned {
		f.free()
	}
}

// isFreed says whether Free was called.
func (a *Arena) isFreed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.freed
}

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

// Time has the calls of functions with the arena's tensors timed: see [Node.Took]. Call it before
// the arena is used. For a device that computes by itself it is the time until the call returns.
func (a *Arena) Time() { a.timed = true }

// now is when a call begins whose results the arena will own, zero where it is not timed.
func (a *Arena) now() (t time.Time) {
	if r := a.root(); r != nil && r.timed {
		t = time.Now()
	}
	return t
}

func since(began time.Time) time.Duration {
	if began.IsZero() {
		return 0
	}
	return time.Since(began)
}

// Nodes lists the functions that were recorded for tensors of the arena, in the order in which they
// were called, and are still held; for inspection.
func (a *Arena) Nodes() []*Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ns []*Node
	for _, f := range a.owned {
		switch k := f.(type) {
		case interface{ recorded() *Node }:
			ns = append(ns, k.recorded())
		case *checkpoint:
			ns = append(ns, k.node)
		}
	}
	return ns
}
