package resilient

import (
	"sync/atomic"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// spare gets memory ready for the values that the next step makes while a snapshot keeps those of
// before, which are not overwritten. To have it from the system takes several times as long as to
// make the step; so it is done while rows are computed. What is ready goes to the device's pool,
// where the step finds it.
type spare struct {
	stop atomic.Bool
	done chan struct{}
}

// spareFor begins to get memory for what is like the tensors of a snapshot and lies on the host.
func spareFor(k *snapshot) *spare {
	var sizes []int
	for _, x := range k.tensors {
		b, err := x.Acquire()
		if err != nil {
			continue // a step says so
		}
		if _, err := b.Host(); err == nil {
			sizes = append(sizes, b.Len())
		}
		_ = b.Release() // ours
	}
	s := &spare{done: make(chan struct{})}
	go s.get(sizes)
	return s
}

func (s *spare) get(sizes []int) {
	defer close(s.done)
	var all []*device.Buffer // they are released together, so that no two are the same
	defer func() { host.Release(all...) }()
	for _, n := range sizes {
		b, err := device.Host().Alloc(n)
		if err != nil {
			return // the step may find some
		}
		all = append(all, b)
		mem, err := b.Host()
		if err != nil {
			return
		}
		const page = 4 << 10 // or more
		for at := 0; at < n; at += page {
			if mem[at] = 0; s.stop.Load() {
				return
			}
		}
	}
}

// end gets no more.
func (s *spare) end() {
	if s != nil {
		s.stop.Store(true)
		<-s.done
	}
}
