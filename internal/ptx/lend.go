package ptx

import (
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// Lend has kernels see pieces of memory that are not the machine's, in place of those that were
// lent before; it waits for all streams. The pieces lie apart, below the machine's own memory, and
// stay until the next Lend. They can be used by launches alone.
func (m *Machine) Lend(pieces []simt.Piece) {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	m.drain()
	m.proc.Memory.Lend(pieces)
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
	for _, p := range own.Kernel.Params {
		s.At, s.Size = append(s.At, p.At), append(s.Size, p.Size)
	}
	s.Shared = own.Kernel.Static
	return s, true
}
