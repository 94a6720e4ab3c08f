package ptx

import (
	"fmt"
	"unsafe"
)

// space is a kind of memory.
type space uint8

const (
	generic space = iota
	global        // constants, too
	shared
	local
	params
)

// access is a memory instruction's way to its bytes.
type access struct {
	space space
	reg   int    // the address
	off   uint64 // behind it
	size  int    // of one element
	all   int    // of all elements of a vector, which is what must be aligned
	write bool
	sync  bool // atomic: many may at once
}

// at gives the bytes of a lane's access, or nil after a fault.
//
//go:norace
//go:nocheckptr
func (w *warp) at(a *access, l int) unsafe.Pointer {
	q := w.r[a.reg][l] + a.off
	space := a.space
	if space == generic {
		space = spaceAt(q)
	}
	switch space {
	case shared: // a window begins where the lower half of an address is 0
		return w.shared(a, l, uint64(uint32(q)))
	case local:
		return w.local(a, l, uint64(uint32(q)))
	case params:
		return w.param(a, l, q)
	}
	return w.global(a, l, q)
}

//go:norace
//go:nocheckptr
func (w *warp) aligned(a *access, l int, q uint64, mem []byte) unsafe.Pointer {
	if q&uint64(a.all-1) != 0 {
		w.fail(l, q, fmt.Sprintf("%#x is not aligned to the %d bytes of the access", q, a.all))
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(mem))
}

//go:norace
//go:nocheckptr
func (w *warp) global(a *access, l int, q uint64) unsafe.Pointer {
	al := w.last
	if q-al.base >= al.size {
		if al = w.b.proc.mem.at(q); al == nil {
			return w.wild(a, l, q)
		}
		w.last = al
	}
	off := q - al.base
	if uint64(a.all) > al.size-off || a.write && al.readOnly {
		return w.wild(a, l, q)
	}
	if a.write && !a.sync && w.b.proc.races && !w.claim(a, l, al, off) {
		return nil
	}
	return w.aligned(a, l, q, al.mem[off:])
}

// constant says whether an address of global memory is of what no kernel may write.
func (w *warp) constant(q uint64) bool {
	al := w.b.proc.mem.at(q)
	return al != nil && al.readOnly
}

func (w *warp) wild(a *access, l int, q uint64) unsafe.Pointer {
	what := "reads"
	if a.write {
		what = "writes"
	}
	w.fail(l, q, fmt.Sprintf("%s %d bytes out of bounds: %s", what, a.all, w.b.proc.mem.near(q)))
	return nil
}

//go:norace
//go:nocheckptr
func (w *warp) shared(a *access, l int, q uint64) unsafe.Pointer {
	b := w.b
	if q > uint64(len(b.shared)) || uint64(a.all) > uint64(len(b.shared))-q {
		w.fail(l, q, fmt.Sprintf("%d bytes at %d of the block's %d bytes of shared memory", a.all, q, len(b.shared)))
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
func (w *warp) local(a *access, l int, q uint64) unsafe.Pointer {
	size := uint64(w.b.k.local)
	if q > size || uint64(a.all) > size-q {
		w.fail(l, q, fmt.Sprintf("%d bytes at %d of the thread's %d bytes of local memory", a.all, q, size))
		return nil
	}
	return w.aligned(a, l, q, w.b.local[uint64(w.id*32+l)*size+q:])
}

//go:norace
//go:nocheckptr
func (w *warp) param(a *access, l int, q uint64) unsafe.Pointer {
	if q > uint64(len(w.b.params)) || uint64(a.all) > uint64(len(w.b.params))-q {
		w.fail(l, q, fmt.Sprintf("reads parameters at %d of %d bytes", q, len(w.b.params)))
		return nil
	}
	return w.aligned(a, l, q, w.b.params[q:])
}
