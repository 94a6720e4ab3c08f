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
	stream Stream          // of copies to others, so that kernels and downloads go on; nil until there is one
}

var _ device.Neighbor = (*GPU)(nil)

// self finds the GPU that a Memory is, or has within.
func (g *GPU) self() *GPU { return g }

// courier is a stream that copies to another GPU; nil where that is out of reach.
func (g *GPU) courier(to Driver) (Courier, Stream, error) {
	driver, ok := g.driver.(Neighbor)
	if !ok {
		return nil, nil, nil
	}
	n := &g.near
	n.mu.Lock()
	defer n.mu.Unlock()
	within, known := n.within[to]
	if !known {
		var err error
		if within, err = driver.Reach(to); err != nil {
			return nil, nil, err
		}
		if n.within == nil {
			n.within = map[Driver]bool{}
		}
		n.within[to] = within
	}
	if !within {
		return nil, nil, nil
	}
	if n.stream == nil {
		s, err := g.driver.Stream()
		if err != nil {
			return nil, nil, err
		}
		n.stream = s
	}
	c, _ := n.stream.(Courier)
	return c, n.stream, nil
}

// CopyTo is Neighbor's. Neither GPU's kernels wait for the copy; the caller does, as with a download.
func (g *GPU) CopyTo(to device.Memory, dst, src uintptr, n int) (bool, error) {
	other, ok := to.(interface{ self() *GPU })
	if !ok {
		return false, nil
	}
	there := other.self()
	courier, stream, err := g.courier(there.driver)
	if courier == nil || err != nil {
		return false, err
	}
	free, err := there.Mark() // its work may use what lay there before
	if err != nil {
		return true, err
	}
	look, err := g.look()
	if err != nil {
		return true, errors.Join(err, free())
	}
	copied, err := g.marks.take()
	if err == nil {
		defer g.marks.give(copied)
		err = stream.Wait(look.done)
	}
	if err = errors.Join(err, free()); err == nil {
		err = errors.Join(courier.CopyTo(there.driver, dst, src, n), stream.Record(copied.done))
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

func (n *near) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stream == nil {
		return nil
	}
	s := n.stream
	n.stream = nil
	return errors.Join(s.Sync(), s.Close())
}
