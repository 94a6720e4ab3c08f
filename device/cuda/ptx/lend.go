package ptx

import (
	"slices"

	"github.com/weft-project/weft/device/cuda"
)

// Piece is memory of somebody else's, with the address at which kernels see it.
type Piece struct {
	At  uintptr
	Mem []byte
}

// Lend has kernels see pieces of memory that are not the machine's, in place of those that were
// lent before; it waits for all streams. The pieces lie apart, below the machine's own memory, and
// stay until the next Lend. They can be used by launches alone.
func (m *Machine) Lend(pieces []Piece) {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	m.settle()
	live := make([]*alloc, 0, len(pieces)+len(m.mem.live))
	for _, p := range pieces {
		if len(p.Mem) > 0 {
			live = append(live, &alloc{base: uint64(p.At), size: uint64(len(p.Mem)), mem: p.Mem, lent: true})
		}
	}
	for _, a := range m.mem.live {
		if !a.lent {
			live = append(live, a)
		}
	}
	slices.SortFunc(live, func(a, b *alloc) int {
		if a.base < b.base {
			return -1
		}
		return 1
	})
	m.mem.live = live
}

// Shape is what a driver knows of a kernel: where its parameters lie in the arguments, their sizes,
// and how much shared memory it has beside what a launch gives.
type Shape struct {
	At, Size []int
	Shared   int
}

// ShapeOf is the shape of a kernel that a Machine loaded.
func ShapeOf(f cuda.Func) (s Shape, ok bool) {
	own, ok := f.(*fn)
	if !ok {
		return Shape{}, false
	}
	for _, p := range own.k.params {
		s.At, s.Size = append(s.At, p.at), append(s.Size, p.size)
	}
	s.Shared = own.k.static
	return s, true
}
