package autodiff

import "sync"

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

// Freed says whether Free was called.
func (a *Arena) Freed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.freed
}
