package gen

import (
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// side is how many elements a tile has each way, and lines how many of its rows go at a time.
const side, lines = 32, 8

// swap writes a copy whose neighbours in the result are far apart in the operand, while neighbours
// in the operand are neighbours along another axis: in tiles through shared memory, so that both
// are read and written side by side. It says whether the nest is such a copy.
func (w *writer) swap(n *nest) bool {
	if len(n.ins) == 0 {
		return false
	}
	dims, st := stride.Collapse(n.dims, n.outs[0].st, n.ins[0].st)
	last := len(dims) - 1
	if last < 1 || st[0][last] != 1 || st[1][last] <= 1 || dims[last] < lines {
		return false
	}
	across := slices.Index(st[1][:last], 1)
	if across < 0 || dims[across] < lines {
		return false
	}
	n.dims, n.outs[0].st, n.ins[0].st, n.lanes = dims, st[0], st[1], 1
	n.wide = w.wide || n.most() > math.MaxInt32/2
	var rest []int
	for k := range last {
		if k != across {
			rest = append(rest, k)
		}
	}
	t := &tile{n: n, e: &emitter{}, last: last, across: across, rest: rest}
	t.x = index{t.e, n.wide}
	blocks := t.write()
	w.endKernel(t.e, blocks, 1, side*lines)
	return true
}

// tile is a copy under way whose axes last and across swap.
type tile struct {
	n            *nest
	e            *emitter
	x            index
	last, across int
	rest         []int
}

// write writes the kernel and says how many blocks it has.
func (t *tile) write() int {
	e, x, n := t.e, t.x, t.n
	in, out := n.ins[0], n.outs[0]
	size, typ := in.dtype.Size(), rawOf(in.dtype)
	wide, high := (n.dims[t.last]+side-1)/side, (n.dims[t.across]+side-1)/side
	outer := pick(n.dims, t.rest)
	e.shared = side * (side + 1) * size
	flat := x.special("%ctaid.x")
	rest := x.over(flat, wide)
	left := x.scaled(x.do("sub", flat, x.scaled(rest, wide, "")), side, "")
	other := x.over(rest, high)
	top := x.scaled(x.do("sub", rest, x.scaled(other, high, "")), side, "")
	pos := x.walk(other, outer)
	tid := x.special("%tid.x")
	tx, ty := x.bit("and", tid, num(side-1)), x.over(tid, side)
	sm := e.op("mov.u32", "sm")
	cell := func(row, col string) string { // of shared memory: rows are one longer, so that columns lie in different banks
		if x.wide {
			row, col = e.op("cvt.u32.u64", row), e.op("cvt.u32.u64", col)
		}
		return e.op("mad.lo.u32", e.op("mad.lo.u32", row, num(side+1), col), num(size), sm)
	}
	// In the operand, neighbours lie along across.
	col, row := x.do("add", top, tx), x.do("add", left, ty)
	at := x.address(x.address(e.global(in.at), pos.offset(pick(in.st, t.rest)), size), x.scaled(row, in.st[t.last], col), size)
	inside := e.op("setp.lt."+x.typ(), col, num(n.dims[t.across]))
	put := cell(ty, tx)
	for k := 0; k < side; k += lines {
		p, from := t.within(row, k, n.dims[t.last], inside), at
		if k > 0 {
			from = e.op("add.s64", at, num(k*in.st[t.last]*size))
		}
		v := e.reg(bitsOf(in.dtype))
		e.line("@%s ld.global.%s %s, [%s];", p, typ, v, from)
		e.line("@%s st.shared.%s [%s], %s;", p, typ, offset(put, k*(side+1)*size), v)
	}
	e.line("bar.sync 0;")
	col, row = x.do("add", left, tx), x.do("add", top, ty)
	to := x.address(x.address(e.global(out.at), pos.offset(pick(out.st, t.rest)), out.dtype.Size()), x.scaled(row, out.st[t.across], col), out.dtype.Size())
	inside = e.op("setp.lt."+x.typ(), col, num(n.dims[t.last]))
	get := cell(tx, ty)
	for k := 0; k < side; k += lines {
		p, into := t.within(row, k, n.dims[t.across], inside), to
		if k > 0 {
			into = e.op("add.s64", to, num(k*out.st[t.across]*out.dtype.Size()))
		}
		v := e.reg(bitsOf(in.dtype))
		e.line("@%s ld.shared.%s %s, [%s];", p, typ, v, offset(get, k*size))
		e.line("@%s st.global.%s [%s], %s;", p, rawOf(out.dtype), into, t.converted(v))
	}
	return wide * high * product(outer)
}

// converted is an element of the operand as the result has it.
func (t *tile) converted(v string) string {
	switch in, out := t.n.ins[0].dtype, t.n.outs[0].dtype; {
	case in == out:
		return v
	case in == device.BFloat16:
		return t.e.upper("b32", v)
	}
	return t.e.lower("f32", v)
}

// within says that row+k is below n, and that p holds.
func (t *tile) within(row string, k, n int, p string) string {
	if k > 0 {
		row = t.x.do("add", row, num(k))
	}
	return t.e.op("and.pred", t.e.op("setp.lt."+t.x.typ(), row, num(n)), p)
}
