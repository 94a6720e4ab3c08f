package autodiff

import (
	"fmt"
	"sync"
)

// Arena owns tensors and frees them together: a pass has one. Tensors computed from an arena's tensors join it. Safe for
// concurrent use, also Free while computations are under way: they finish or fail with ErrFreed, and leave nothing.
type Arena struct {
	label string
	scope *scope // nil for an arena of its own
	timed bool   // the calls of its tensors are

	mu    sync.Mutex
	owned []freer
	bytes int64
	freed bool
}

// freer is a tensor, or a node of the tape that keeps values for the backward.
type freer interface{ free() }

// NewArena makes an arena; label names it in errors ("pass 281474976710657").
func NewArena(label string) *Arena { return &Arena{label: label} }

// String is the label.
func (a *Arena) String() string { return a.label }

// adopt puts something under the arena's ownership. It fails with ErrFreed, and then owns nothing.
func (a *Arena) adopt(f freer, bytes int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.freed {
		return fmt.Errorf("%w: %s", ErrFreed, a.label)
	}
	if a.owned == nil {
		a.owned = make([]freer, 0, 16)
	}
	a.owned = append(a.owned, f)
	a.bytes += int64(bytes)
	return nil
}

// Adopt moves a tensor that belongs to nobody into the arena, which frees it. Only its maker may do that.
func (a *Arena) Adopt(t *Tensor) error {
	if err := t.Err(); err != nil {
		return opError("Adopt", err)
	}
	if t.owner == a {
		return nil
	}
	if t.owner != nil {
		return opError("Adopt", fmt.Errorf("%w: %s and %s", ErrMixedPasses, t.owner.label, a.label))
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
