package gen

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/weft-project/weft/device"
)

// access is how a tensor is read or written over the axes of a nest.
type access struct {
	at    Param
	dtype device.Dtype
	st    []int // strides, in elements
}

func (a access) last() int {
	if len(a.st) == 0 {
		return 0
	}
	return a.st[len(a.st)-1]
}

// constant says that it is one element.
func (a access) constant() bool {
	return !slices.ContainsFunc(a.st, func(s int) bool { return s != 0 })
}

// most is the offset of the last element over dims.
func (a access) most(dims []int) int {
	n := 0
	for k, d := range dims {
		n += max(d-1, 0) * a.st[k]
	}
	return n
}

// index computes with numbers of elements: 32 bits wide where all fit into 31.
type index struct {
	*emitter
	wide bool
}

func (x index) typ() string {
	if x.wide {
		return "u64"
	}
	return "u32"
}

func (x index) do(op string, args ...string) string { return x.op(op+"."+x.typ(), args...) }

// bit is do for what has no sign.
func (x index) bit(op string, args ...string) string { return x.op(op+".b"+x.typ()[1:], args...) }

// scaled is a·k+b; b may be "".
func (x index) scaled(a string, k int, b string) string {
	switch {
	case k == 0:
		return b
	case k == 1 && b == "":
		return a
	case k == 1:
		return x.do("add", a, b)
	case b == "":
		return x.do("mul.lo", a, num(k))
	}
	return x.do("mad.lo", a, num(k), b)
}

// special reads a register of 32 bits such as %tid.x.
func (x index) special(name string) string {
	r := x.op("mov.u32", name)
	if x.wide {
		r = x.op("cvt.u64.u32", r)
	}
	return r
}

// over divides by a constant; a is less than 2³¹, or 2⁶³ where indices are wide.
func (x index) over(a string, d int) string {
	s := bits.Len(uint(d - 1))
	if d&(d-1) == 0 {
		if s == 0 {
			return a
		}
		return x.op(fmt.Sprintf("shr.%s", x.typ()), a, num(s))
	}
	// m = ⌊2^(width-1+s)/d⌋+1 is less than 2^width, and a·m / 2^(width-1+s) is right for every a
	// below 2^(width-1).
	var m uint64
	if x.wide {
		m, _ = bits.Div64(1<<(s-1), 0, uint64(d))
	} else {
		m = (1 << (31 + s)) / uint64(d)
	}
	q := x.do("mul.hi", a, fmt.Sprint(m+1))
	if s > 1 {
		q = x.op(fmt.Sprintf("shr.%s", x.typ()), q, num(s-1))
	}
	return q
}

// address is base + off elements; off may be "" for 0.
func (x index) address(base, off string, size int) string {
	if off == "" {
		return base
	}
	if x.wide {
		return x.op("mad.lo.u64", off, num(size), base)
	}
	return x.op("add.s64", base, x.op("mul.wide.u32", off, num(size)))
}

// walk is a position, counted flat over some axes, and what offsets it means.
type walk struct {
	index
	flat string
	dims []int
	idx  []string // along each axis, once it is asked for
	off  map[string]string
}

func (x index) walk(flat string, dims []int) *walk {
	return &walk{index: x, flat: flat, dims: dims, off: map[string]string{}}
}

// offset is where the position lies by strides over the axes, in elements; "" for 0.
func (w *walk) offset(st []int) string {
	key := fmt.Sprint(st)
	if off, ok := w.off[key]; ok {
		return off
	}
	off, linear := "", true
	for k := 0; k+1 < len(st); k++ {
		linear = linear && st[k] == st[k+1]*w.dims[k+1]
	}
	switch {
	case len(st) == 0:
	case linear:
		off = w.scaled(w.flat, st[len(st)-1], "")
	default:
		w.split()
		for k, s := range st {
			if s != 0 && w.idx[k] != "" {
				off = w.scaled(w.idx[k], s, off)
			}
		}
	}
	w.off[key] = off
	return off
}

// split finds the position along each axis.
func (w *walk) split() {
	if w.idx != nil {
		return
	}
	w.idx = make([]string, len(w.dims))
	rest := w.flat
	for k := len(w.dims) - 1; k > 0; k-- {
		q := w.over(rest, w.dims[k])
		w.idx[k] = w.do("sub", rest, w.do("mul.lo", q, num(w.dims[k])))
		rest = q
	}
	w.idx[0] = rest
}
