package simt

import (
	"fmt"
	"unsafe"
)

// Space is a kind of memory.
type Space uint8

// Kinds of memory.
const (
	Generic Space = iota
	Global        // constants, too
	Shared
	Local
	Parameter
)

// Access is a memory instruction's way to its bytes.
type Access struct {
	Space Space
	Reg   int    // the address
	Off   uint64 // behind it
	Size  int    // of one element
	All   int    // of all elements of a vector, which is what must be aligned
	Write bool
	Sync  bool // atomic: many may at once
}

// LaneBytes gives the bytes of a lane's access, or nil after a fault.
//
//go:norace
//go:nocheckptr
func (w *Warp) LaneBytes(a *Access, l int) unsafe.Pointer {
	q := w.Regs[a.Reg][l] + a.Off
	space := a.Space
	if space == Generic {
		space = SpaceAt(q)
	}
	switch space {
	case Shared: // a window begins where the lower half of an address is 0
		return w.shared(a, l, uint64(uint32(q)))
	case Local:
		return w.local(a, l, uint64(uint32(q)))
	case Parameter:
		return w.param(a, l, uint64(uint32(q)))
	}
	return w.global(a, l, q)
}

//go:norace
//go:nocheckptr
func (w *Warp) aligned(a *Access, l int, q uint64, mem []byte) unsafe.Pointer {
	if q&uint64(a.All-1) != 0 {
		w.Fail(l, q, fmt.Sprintf("%#x is not aligned to the %d bytes of the access", q, a.All))
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(mem))
}

//go:norace
//go:nocheckptr
func (w *Warp) global(a *Access, l int, q uint64) unsafe.Pointer {
	al := w.last
	if q-al.Base >= al.Size {
		if al = w.b.proc.Memory.At(q); al == nil {
			return w.wild(a, l, q)
		}
		w.last = al
	}
	off := q - al.Base
	if uint64(a.All) > al.Size-off || a.Write && al.ReadOnly {
		return w.wild(a, l, q)
	}
	if a.Write && !a.Sync && w.b.proc.Races && !w.claim(a, l, al, off) {
		return nil
	}
	return w.aligned(a, l, q, al.Mem[off:])
}

// Constant says whether an address of global memory is of what no kernel may write.
func (w *Warp) Constant(q uint64) bool {
	al := w.b.proc.Memory.At(q)
	return al != nil && al.ReadOnly
}

func (w *Warp) wild(a *Access, l int, q uint64) unsafe.Pointer {
	what := "reads"
	if a.Write {
		what = "writes"
	}
	w.Fail(l, q, fmt.Sprintf("%s %d bytes out of bounds: %s", what, a.All, w.b.proc.Memory.near(q)))
	return nil
}

//go:norace
//go:nocheckptr
func (w *Warp) shared(a *Access, l int, q uint64) unsafe.Pointer {
	b := w.b
	if q > uint64(len(b.shared)) || uint64(a.All) > uint64(len(b.shared))-q {
		w.Fail(l, q, fmt.Sprintf("%d bytes at %d of the block's %d bytes of shared memory", a.All, q, len(b.shared)))
		return nil
	}
	p := w.aligned(a, l, q, b.shared[q:])
	if p == nil || !w.touch(l, q, a) {
		return nil
	}
	return p
}

//go:norace
//go:nocheckptr
func (w *Warp) local(a *Access, l int, q uint64) unsafe.Pointer {
	size := uint64(w.b.k.Local)
	if q > size || uint64(a.All) > size-q {
		w.Fail(l, q, fmt.Sprintf("%d bytes at %d of the thread's %d bytes of local memory", a.All, q, size))
		return nil
	}
	return w.aligned(a, l, q, w.b.local[uint64(w.id*32+l)*size+q:])
}

//go:norace
//go:nocheckptr
func (w *Warp) param(a *Access, l int, q uint64) unsafe.Pointer {
	if q > uint64(len(w.b.params)) || uint64(a.All) > uint64(len(w.b.params))-q {
		w.Fail(l, q, fmt.Sprintf("reads parameters at %d of %d bytes", q, len(w.b.params)))
		return nil
	}
	return w.aligned(a, l, q, w.b.params[q:])
}
