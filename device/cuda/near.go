package cuda

import (
	"errors"
	"sync"

	"github.com/weft-project/weft/device"
)

// near is how a GPU reaches others.
type near struct {
	mu     sync.Mutex
	within map[Driver]bool // drivers that were asked about
}

var _ device.Neighbor = (*GPU)(nil)

// self finds the GPU that a Memory is, or has within.
func (g *GPU) self() *GPU { return g }

// courier is the stream that copies to another GPU; nil where that is out of reach.
func (g *GPU) courier(to Driver) (Courier, error) {
	driver, ok := g.driver.(Neighbor)
	if !ok {
		return nil, nil
	}
	n := &g.near
	n.mu.Lock()
	defer n.mu.Unlock()
	within, known := n.within[to]
	if !known {
		var err error
		if within, err = driver.Reach(to); err != nil {
			return nil, err
		}
		if n.within == nil {
			n.within = map[Driver]bool{}
		}
		n.within[to] = within
	}
	if !within {
		return nil, nil
	}
	if g.streams[far] == nil {
		s, err := g.driver.Stream()
		if err != nil {
			return nil, err
		}
		g.streams[far] = s
	}
	c, _ := g.streams[far].(Courier)
	return c, nil
}

// CopyTo is Neighbor's. Neither GPU's kernels wait for the copy; the caller does, as with a download.
func (g *GPU) CopyTo(to device.Memory, dst, src uintptr, n int) (bool, error) {
	other, ok := to.(interface{ self() *GPU })
	if !ok {
		return false, nil
	}
	there := other.self()
	courier, err := g.courier(there.driver)
	if courier == nil || err != nil {
		return false, err
	}
	need := g.wrote(src, n)
	if err := errors.Join(there.await(there.uses(dst)), g.await(&need)); err != nil { // here, and not on the stream, where other copies would wait, too
		return true, err
	}
	look, err := g.look(far, &need, src)
	if err != nil {
		return true, err
	}
	copied, err := g.marks.take()
	if err == nil {
		defer g.marks.give(copied)
		err = errors.Join(courier.CopyTo(there.driver, dst, src, n), g.streams[far].Record(copied.done))
	}
	if err == nil {
		err = copied.done.Sync()
	}
	if err != nil {
		look.drop()
		return true, err
	}
	return true, look.end()
}

// uses is what used the block of an address.
func (g *GPU) uses(at uintptr) *clock {
	g.mu.Lock()
	defer g.mu.Unlock()
	need := new(clock)
	g.blocks.of(at).use.before(need, true)
	return need
}
