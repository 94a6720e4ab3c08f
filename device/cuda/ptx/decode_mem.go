package ptx

import (
	"errors"
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

// addressOf reads an operand [name+off] of a memory instruction on n elements.
func (c *compiler) addressOf(s *stmt, o operand, n int) (access, error) {
	t := s.types()
	if o.kind != operandAddr || len(t) == 0 {
		return access{}, errors.New("expected an address and a type")
	}
	last := t[len(t)-1]
	a := access{off: uint64(o.off), size: last.size, all: last.size * n}
	if last.kind == 'p' {
		return a, errUnknown
	}
	a.space = spaceOf(s)
	if a.space == shared || a.space == generic {
		c.k.granule = min(c.k.granule, a.size)
	}
	if o.name == "" {
		a.reg = c.constant(0)
		return a, nil
	}
	if sym, ok := c.lookup(o.name); ok && a.space == params && sym.kind == symLocal {
		a.space = local // a parameter of a function that is called
	}
	var err error
	a.reg, err = c.in(operand{name: o.name}, typ{kind: 'u', size: 8})
	return a, err
}

func spaceOf(s *stmt) space {
	switch s.oneOf("global", "const", "shared", "shared::cta", "local", "param") {
	case "global", "const":
		return global
	case "shared", "shared::cta":
		return shared
	case "local":
		return local
	case "param":
		return params
	}
	return generic
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
		if al = w.b.m.mem.at(q); al == nil {
			return w.wild(a, l, q)
		}
		w.last = al
	}
	off := q - al.base
	if uint64(a.all) > al.size-off || a.write && al.readOnly {
		return w.wild(a, l, q)
	}
	if a.write && !a.sync && w.b.m.conf.Races && !w.claim(a, l, al, off) {
		return nil
	}
	return w.aligned(a, l, q, al.mem[off:])
}

func (w *warp) wild(a *access, l int, q uint64) unsafe.Pointer {
	what := "reads"
	if a.write {
		what = "writes"
	}
	w.fail(l, q, fmt.Sprintf("%s %d bytes out of bounds: %s", what, a.all, w.b.m.mem.near(q)))
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

// elements gives the operands of a vector, or the one.
func elements(o operand) []operand {
	if o.kind == operandVec {
		return o.list
	}
	return []operand{o}
}

// load compiles ld.
func (c *compiler) load(s *stmt) (exec, error) {
	if len(s.args) != 2 {
		return nil, errUnknown
	}
	to := elements(s.args[0])
	if err := vectorOf(s, len(to)); err != nil {
		return nil, err
	}
	a, err := c.addressOf(s, s.args[1], len(to))
	if err != nil {
		return nil, err
	}
	d := make([]int, len(to))
	for k := range to {
		if d[k], err = c.out(to[k]); err != nil {
			return nil, err
		}
	}
	ts := s.types()
	return c.metered(loadsOf(ts[len(ts)-1])(a, d), a), nil
}

// loadsOf gives the load of a type, which is extended to what a register has.
func loadsOf(t typ) func(a access, d []int) exec {
	switch {
	case t == typ{kind: 's', size: 1}:
		return loads[int8]
	case t == typ{kind: 's', size: 2}:
		return loads[int16]
	case t == typ{kind: 's', size: 4}:
		return loads[int32]
	case t.size == 1:
		return loads[uint8]
	case t.size == 2:
		return loads[uint16]
	case t.size == 4:
		return loads[uint32]
	}
	return loads[uint64]
}

func vectorOf(s *stmt, n int) error {
	want := 1
	if s.has("v2") {
		want = 2
	}
	if s.has("v4") {
		want = 4
	}
	if n != want {
		return fmt.Errorf("%d registers, expected %d", n, want)
	}
	return nil
}

func loads[T integer](a access, d []int) exec {
	if len(d) == 1 {
		return loads1[T](a, d[0])
	}
	return func(w *warp, m uint32) { loadVectors[T](w, &a, d, m) }
}

//go:norace
//go:nocheckptr
func loadVectors[T integer](w *warp, a *access, d []int, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			p := w.at(a, l)
			if p == nil {
				return
			}
			for k, r := range d {
				w.r[r][l] = uint64(*(*T)(unsafe.Add(p, k*a.size)))
			}
		}
	}
}

// loads1 has the ways that most accesses take written out, for kernels spend much of their time
// here.
func loads1[T integer](a access, d int) exec {
	switch a.space {
	case global:
		return func(w *warp, m uint32) { loadGlobal[T](w, &a, d, m) }
	case shared:
		return func(w *warp, m uint32) { loadShared[T](w, &a, d, m) }
	}
	return func(w *warp, m uint32) { loadLanes[T](w, &a, d, m) }
}

//go:norace
//go:nocheckptr
func loadGlobal[T integer](w *warp, a *access, d int, m uint32) {
	n := uint64(a.size)
	D, A, last := &w.r[d], &w.r[a.reg], w.last
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		q := A[l] + a.off
		if o := q - last.base; o < last.size && q&(n-1) == 0 && n <= last.size-o {
			D[l] = uint64(*(*T)(unsafe.Pointer(&last.mem[o])))
			continue
		}
		p := w.at(a, l)
		if p == nil {
			return
		}
		last = w.last
		D[l] = uint64(*(*T)(p))
	}
}

//go:norace
//go:nocheckptr
func loadShared[T integer](w *warp, a *access, d int, m uint32) {
	n, b := uint64(a.size), w.b
	D, A := &w.r[d], &w.r[a.reg]
	epoch, first, mem, cells, shift := b.epoch, b.first, b.shared, b.cells, b.shift&31
	one := n == 1<<shift
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		if q := A[l] + a.off; one && q < uint64(len(mem)) && q&(n-1) == 0 {
			c := &cells[q>>shift] // many have read what is there already: there is no more to see
			if c.read == epoch && c.reader == manyReaders && c.written != epoch && c.written >= first {
				D[l] = uint64(*(*T)(unsafe.Pointer(&mem[q])))
				continue
			}
		}
		p := w.at(a, l)
		if p == nil {
			return
		}
		D[l] = uint64(*(*T)(p))
	}
}

//go:norace
//go:nocheckptr
func loadLanes[T integer](w *warp, a *access, d int, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			p := w.at(a, l)
			if p == nil {
				return
			}
			w.r[d][l] = uint64(*(*T)(p))
		}
	}
}

// store compiles st.
func (c *compiler) store(s *stmt) (exec, error) {
	if len(s.args) != 2 {
		return nil, errUnknown
	}
	from := elements(s.args[1])
	if err := vectorOf(s, len(from)); err != nil {
		return nil, err
	}
	a, err := c.addressOf(s, s.args[0], len(from))
	if err != nil {
		return nil, err
	}
	if a.space == params || s.has("const") {
		return nil, errors.New("a store to what cannot be written")
	}
	a.write = true
	ts := s.types()
	t := ts[len(ts)-1]
	v := make([]int, len(from))
	for k := range from {
		if v[k], err = c.in(from[k], t); err != nil {
			return nil, err
		}
	}
	return c.metered(storesOf(t.size)(a, v), a), nil
}

func storesOf(size int) func(a access, v []int) exec {
	switch size {
	case 1:
		return stores[uint8]
	case 2:
		return stores[uint16]
	case 4:
		return stores[uint32]
	}
	return stores[uint64]
}

func stores[T integer](a access, v []int) exec {
	return func(w *warp, m uint32) { storeLanes[T](w, &a, v, m) }
}

//go:norace
//go:nocheckptr
func storeLanes[T integer](w *warp, a *access, v []int, m uint32) {
	n := uint64(a.all)
	A, races := &w.r[a.reg], w.b.m.conf.Races
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		var p unsafe.Pointer
		q := A[l] + a.off
		if o := q - w.last.base; a.space == global && o < w.last.size && q&(n-1) == 0 && n <= w.last.size-o && !w.last.readOnly && !races {
			p = unsafe.Pointer(&w.last.mem[o])
		} else if p = w.at(a, l); p == nil {
			return
		}
		for k, r := range v {
			*(*T)(unsafe.Add(p, k*a.size)) = at[T](&w.r[r], l)
		}
	}
}
