package gpumem

import (
	"errors"
	"maps"
	"sync"
	"weak"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// near is how a GPU reaches others.
type near struct {
	mu     sync.Mutex
	within map[weak.Pointer[GPU]]bool // those that were asked about; it keeps none of them
}

// reaches says whether a driver reaches another GPU.
func (n *near) reaches(driver cuda.Neighbor, to *GPU) (bool, error) {
	within, known := n.within[weak.Make(to)]
	if known {
		return within, nil
	}
	within, err := driver.Reach(to.driver)
	if err != nil {
		return false, err
	}
	if n.within == nil {
		n.within = map[weak.Pointer[GPU]]bool{}
	}
	maps.DeleteFunc(n.within, func(g weak.Pointer[GPU], _ bool) bool { return g.Value() == nil })
	n.within[weak.Make(to)] = within
	return within, nil
}

var _ device.Neighbor = (*GPU)(nil)

// self finds the GPU that a Memory is, or has within.
func (g *GPU) self() *GPU { return g }

// courier is the stream that copies to another GPU; nil where that is out of reach.
func (g *GPU) courier(to *GPU) (cuda.Courier, error) {
	driver, ok := g.driver.(cuda.Neighbor)
	if !ok {
		return nil, nil
	}
	g.near.mu.Lock()
	defer g.near.mu.Unlock()
	if within, err := g.near.reaches(driver, to); !within {
		return nil, err
	}
	if g.streams[far] == nil {
		s, err := g.driver.Stream()
		if err != nil {
			return nil, err
		}
		g.streams[far] = s
	}
	c, _ := g.streams[far].(cuda.Courier)
	return c, nil
}

// CopyTo is Neighbor's. Neither GPU's kernels wait for the copy; the caller does, as with a
// download.
func (g *GPU) CopyTo(to device.Memory, dst, src uintptr, n int) (bool, error) {
	other, ok := to.(interface{ self() *GPU })
	if !ok {
		return false, nil
	}
	there := other.self()
	courier, err := g.courier(there)
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
