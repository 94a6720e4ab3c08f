package ptx

import (
	"errors"
	"fmt"
	"unsafe"
)

// access is a memory instruction's way to its bytes.
type access struct {
	space string // "" is generic
	reg   int    // the address
	off   uint64
	size  int // of one element
	all   int // of all elements of a vector, which is what must be aligned
	write bool
	sync  bool // atomic: many may at once
	plain bool // neither atomic nor volatile
}

// addressOf reads an operand [name+off] of a memory instruction.
func (c *compiler) addressOf(s *stmt, o operand, n int) (access, error) {
	t := s.types()
	if o.kind != operandAddr || len(t) == 0 {
		return access{}, errors.New("expected an address and a type")
	}
	last := t[len(t)-1]
	a := access{off: uint64(o.off), size: last.size, all: last.size * n, plain: s.oneOf("volatile", "relaxed", "acquire", "release") == ""}
	if last.kind == 'p' {
		return a, errUnknown
	}
	a.space = s.oneOf("global", "shared", "local", "param", "const", "shared::cta")
	if a.space == "shared::cta" {
		a.space = "shared"
	}
	if o.name == "" {
		a.reg = c.constant(0)
		return a, nil
	}
	var err error
	sym, ok := c.lookup(o.name)
	if ok && sym.kind != symReg && a.space == "param" && sym.kind == symLocal {
		a.space = "local" // a parameter of a function that is called
	}
	a.reg, err = c.in(operand{name: o.name}, typ{kind: 'u', size: 8})
	if a.space == "shared" && a.size < c.k.granule {
		c.k.granule = a.size
	}
	if a.space == "" && a.size < c.k.granule { // may be shared
		c.k.granule = a.size
	}
	return a, err
}

// at gives the bytes of a lane's access, or nil after a fault.
func (w *warp) at(a *access, l int) unsafe.Pointer {
	q := w.r[a.reg][l] + a.off
	switch a.space {
	case "global", "const":
		return w.global(a, l, q)
	case "shared":
		return w.shared(a, l, uint64(uint32(q)))
	case "local":
		return w.local(a, l, uint64(uint32(q)))
	case "param":
		if q > uint64(len(w.b.params)) || uint64(a.all) > uint64(len(w.b.params))-q {
			w.fail(l, q, fmt.Sprintf("reads parameters at %d of %d bytes", q, len(w.b.params)))
			return nil
		}
		return w.aligned(a, l, q, w.b.params[q:])
	}
	switch {
	case q >= sharedWindow && q < localWindow:
		return w.shared(a, l, q-sharedWindow)
	case q >= localWindow && q < localWindow+1<<32:
		return w.local(a, l, q-localWindow)
	}
	return w.global(a, l, q)
}

func (w *warp) aligned(a *access, l int, q uint64, mem []byte) unsafe.Pointer {
	if q&uint64(a.all-1) != 0 {
		w.fail(l, q, fmt.Sprintf("%#x is not aligned to the %d bytes of the access", q, a.all))
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(mem))
}

func (w *warp) global(a *access, l int, q uint64) unsafe.Pointer {
	al := w.last
	if al == nil || q-al.base >= al.size {
		if al = w.b.m.mem.at(q); al == nil {
			return w.wild(a, l, q)
		}
		w.last = al
	}
	off := q - al.base
	if uint64(a.all) > al.size-off || a.write && al.readOnly {
		return w.wild(a, l, q)
	}
	if q&uint64(a.all-1) != 0 {
		return w.aligned(a, l, q, nil)
	}
	return unsafe.Pointer(&al.mem[off])
}

func (w *warp) wild(a *access, l int, q uint64) unsafe.Pointer {
	what := "reads"
	if a.write {
		what = "writes"
	}
	w.fail(l, q, fmt.Sprintf("%s %d bytes out of bounds: %s", what, a.all, w.b.m.mem.near(q)))
	return nil
}

func (w *warp) shared(a *access, l int, q uint64) unsafe.Pointer {
	b := w.b
	if q > uint64(len(b.shared)) || uint64(a.all) > uint64(len(b.shared))-q {
		w.fail(l, q, fmt.Sprintf("%d bytes at %d of the block's %d bytes of shared memory", a.all, q, len(b.shared)))
		return nil
	}
	p := w.aligned(a, l, q, b.shared[q:])
	if p == nil || !a.sync && !w.touch(l, q, a.all, a.write) {
		return nil
	}
	if a.sync {
		for k := int(q) / b.k.granule; k < (int(q)+a.all+b.k.granule-1)/b.k.granule; k++ {
			b.cells[k].serial = b.serial
		}
	}
	return p
}

func (w *warp) local(a *access, l int, q uint64) unsafe.Pointer {
	size := uint64(w.b.k.local)
	if q > size || uint64(a.all) > size-q {
		w.fail(l, q, fmt.Sprintf("%d bytes at %d of the thread's %d bytes of local memory", a.all, q, size))
		return nil
	}
	return w.aligned(a, l, q, w.b.local[uint64(w.id*32+l)*size+q:])
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
	switch t := ts[len(ts)-1]; {
	case t == typ{kind: 's', size: 1}:
		return loads[int8](a, d), nil
	case t == typ{kind: 's', size: 2}:
		return loads[int16](a, d), nil
	case t == typ{kind: 's', size: 4}:
		return loads[int32](a, d), nil
	case t.size == 1:
		return loads[uint8](a, d), nil
	case t.size == 2:
		return loads[uint16](a, d), nil
	case t.size == 4:
		return loads[uint32](a, d), nil
	}
	return loads[uint64](a, d), nil
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
		d := d[0]
		return func(w *warp, m uint32) {
			D := &w.r[d]
			for l := range 32 {
				if m>>l&1 != 0 {
					p := w.at(&a, l)
					if p == nil {
						return
					}
					D[l] = uint64(*(*T)(p))
				}
			}
		}
	}
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				p := w.at(&a, l)
				if p == nil {
					return
				}
				for k, r := range d {
					w.r[r][l] = uint64(*(*T)(unsafe.Add(p, k*a.size)))
				}
			}
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
	if a.space == "param" || a.space == "const" {
		return nil, fmt.Errorf("a store to .%s", a.space)
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
	switch t.size {
	case 1:
		return stores[uint8](a, v), nil
	case 2:
		return stores[uint16](a, v), nil
	case 4:
		return stores[uint32](a, v), nil
	}
	return stores[uint64](a, v), nil
}

func stores[T integer](a access, v []int) exec {
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				p := w.at(&a, l)
				if p == nil {
					return
				}
				for k, r := range v {
					*(*T)(unsafe.Add(p, k*a.size)) = at[T](&w.r[r], l)
				}
			}
		}
	}
}

// cvta turns an address of a space into one that all may use, and back.
func (c *compiler) cvta(s *stmt) (exec, error) {
	space := s.oneOf("global", "shared", "local", "const", "param", "shared::cta")
	d, x, err := c.regs(s, typ{kind: 'u', size: 8}, 1)
	if err != nil {
		return nil, err
	}
	var base uint64
	switch space {
	case "shared", "shared::cta":
		base = sharedWindow
	case "local":
		base = localWindow
	case "":
		return nil, errUnknown
	case "param":
		return nil, errors.New("generic addresses of parameters are not understood")
	}
	if s.has("to") {
		base = -base
	}
	if base == 0 {
		return copy64(d, x[0]), nil
	}
	return map1(d, x[0], func(v uint64) uint64 { return v + base }), nil
}

// isspacep asks what memory an address is of.
func (c *compiler) isspacep(s *stmt) (exec, error) {
	if len(s.args) != 2 {
		return nil, errUnknown
	}
	d, _, err := c.predicate(s.args[0])
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.args[1], typ{kind: 'u', size: 8})
	space := s.oneOf("global", "shared", "local", "const")
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			q := w.r[a][l]
			is := "global"
			switch {
			case q >= sharedWindow && q < localWindow:
				is = "shared"
			case q >= localWindow && q < localWindow+1<<32:
				is = "local"
			default:
				if al := w.b.m.mem.at(q); al != nil && al.readOnly {
					is = "const"
				}
			}
			w.p[d] &^= 1 << l
			if is == space {
				w.p[d] |= 1 << l
			}
		}
	}, err
}
