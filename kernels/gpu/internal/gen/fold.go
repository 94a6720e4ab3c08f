package gen

import (
	"math/bits"

	"github.com/weft-project/weft/device"
)

// folding is a fold: values become one by join, in an order that the shapes alone decide.
type folding struct {
	to   access // the result; its strides are 0 along what is folded
	acc  device.Dtype
	init string
	lift func(e *emitter, v string) string // a value as acc
	join func(e *emitter, a, b string) string
	done func(e *emitter, v string) string // acc as the result
}

// Sizes of folds.
const (
	foldThreads = 256
	foldBlocks  = 1024 // about how many blocks are wanted
	foldEach    = 8    // groups of lanes that a thread is to have, where there are more threads than that needs
)

// fold writes a nest whose folds all go over the same axes.
func (w *writer) fold(n *nest) {
	w.shape(n)
	f := &folder{w: w, n: n, e: &emitter{}}
	f.x = index{f.e, n.wide}
	for k, d := range n.dims {
		if n.folds[0].to.st[k] != 0 {
			f.keptDims, f.keptAxes = append(f.keptDims, d), append(f.keptAxes, k)
		} else {
			f.rest, f.restAxes = append(f.rest, d), append(f.restAxes, k)
		}
	}
	f.kept, f.folded = product(f.keptDims), product(f.rest)
	if f.kept == 0 {
		return
	}
	if last := len(n.dims) - 1; last >= 0 && n.folds[0].to.st[last] != 0 {
		f.columns()
	} else {
		f.rows()
	}
	for k := range f.next {
		w.fold(f.next[k])
	}
}

// folder is a fold under way. Positions are those of what is kept, and of what is folded.
type folder struct {
	w    *writer
	n    *nest
	e    *emitter
	x    index
	next []*nest // what folds the parts

	keptDims, keptAxes []int
	rest, restAxes     []int
	kept, folded       int // groups of lanes
	parts              int // blocks that share a result
	each               int // how much of what is folded is one part
}

// pick takes the strides along some axes.
func pick(st, axes []int) []int {
	out := make([]int, len(axes))
	for k, a := range axes {
		out[k] = st[a]
	}
	return out
}

// ceil is a power of two, at least n.
func ceil(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// cut shares what is folded among parts, given how many blocks there are without and how many
// threads fold together.
func (f *folder) cut(blocks, together int) {
	most := (f.folded + together*foldEach - 1) / (together * foldEach)
	f.parts = max(1, min(most, (foldBlocks+blocks-1)/blocks))
	f.each = (f.folded + f.parts - 1) / f.parts
	f.each = max(together, (f.each+together-1)/together*together)
	f.parts = max(1, (f.folded+f.each-1)/f.each)
}

// loop writes what a thread does: groups of lanes from position at on, step apart, of its part.
// valid says whether the thread has anything to do, "" for surely. acc are the sums: of each fold,
// how many are given.
func (f *folder) loop(kept *walk, at string, step int, valid string, acc [][]string) {
	e, x, n := f.e, f.x, f.n
	end := num(f.folded)
	if f.parts > 1 {
		from := x.scaled(x.special("%ctaid.y"), f.each, "")
		at = x.do("add", from, at)
		end = x.do("min", x.do("add", from, num(f.each)), num(f.folded))
	}
	r := e.op("mov."+x.typ(), at)
	if valid != "" { // the others have come to the end
		e.set(r, "selp."+x.typ(), r, num(f.folded), valid)
	}
	constants := n.constants(e)
	from := func(as []access) []string {
		out := make([]string, len(as))
		for k, a := range as {
			out[k] = x.address(e.global(a.at), kept.offset(pick(a.st, f.keptAxes)), a.dtype.Size())
		}
		return out
	}
	ins, outs := from(n.ins), from(n.outs)
	again, over := e.label(), e.label()
	e.here(again)
	e.line("@%s bra %s;", e.op("setp.ge."+x.typ(), r, end), over)
	unroll := f.unroll(step)
	var strips []*strip
	for u := range unroll {
		pos, p := r, ""
		if u > 0 {
			pos = x.do("add", r, num(u*step))
			p = e.op("setp.lt."+x.typ(), pos, end)
		}
		at := x.walk(pos, f.rest)
		to := func(base []string, as []access) []string {
			out := make([]string, len(as))
			for k, a := range as {
				out[k] = x.address(base[k], at.offset(pick(a.st, f.restAxes)), a.dtype.Size())
			}
			return out
		}
		strips = append(strips, n.strip(e, p, to(ins, n.ins), to(outs, n.outs), constants))
	}
	for _, s := range strips {
		for k, lanes := range s.compute(e) {
			f.gather(&n.folds[k], acc[k], lanes, s.p)
		}
	}
	e.set(r, "add."+x.typ(), r, num(unroll*step))
	e.line("bra %s;", again)
	e.here(over)
}

// unroll is how many groups of lanes a thread takes at a time.
func (f *folder) unroll(step int) int {
	most := max(1, (f.each+step-1)/step)
	switch {
	case f.n.heavy > 60 || most == 1:
		return 1
	case f.n.heavy > 20 || most < 4 || f.n.lanes*len(f.n.ins) > 4:
		return 2
	}
	return 4
}

// gather folds lanes into as many sums, or, where there is but one, pair by pair first.
func (f *folder) gather(g *folding, acc, lanes []string, p string) {
	for k, v := range lanes {
		lanes[k] = g.lift(f.e, v)
	}
	if len(acc) == 1 {
		for len(lanes) > 1 {
			half := make([]string, len(lanes)/2)
			for k := range half {
				half[k] = g.join(f.e, lanes[2*k], lanes[2*k+1])
			}
			lanes = half
		}
	}
	for k, a := range acc {
		f.e.line("%smov.%s %s, %s;", guard(p), holds(g.acc), a, g.join(f.e, a, lanes[k]))
	}
}

// zeroSums makes sums of nothing.
func (f *folder) zeroSums(count int) [][]string {
	acc := make([][]string, len(f.n.folds))
	for k, g := range f.n.folds {
		for range count {
			acc[k] = append(acc[k], f.e.op("mov."+holds(g.acc), g.init))
		}
	}
	return acc
}

// finish writes sums of fold k, one or one per lane: as the result, or to where [folder.next] reads
// what parts have made.
func (f *folder) finish(k int, kept *walk, p string, sums []string, rows bool) {
	e, x, g := f.e, f.x, f.n.folds[k]
	if f.parts == 1 {
		for l, s := range sums {
			sums[l] = g.done(e, s)
		}
		at := x.address(e.global(g.to.at), kept.offset(pick(g.to.st, f.keptAxes)), g.to.dtype.Size())
		if len(sums) == 1 {
			f.n.storeOne(e, g.to, at, p, sums[0])
			return
		}
		f.n.store(e, g.to, at, p, sums)
		return
	}
	results := f.kept * len(sums)
	part := access{f.w.scratch(results * f.parts * g.acc.Size()), g.acc, nil}
	to := x.special("%ctaid.y")
	dims, toSt := []int{results, f.parts}, []int{1, 0}
	if rows {
		to = x.scaled(kept.flat, f.parts, to)
		part.st = []int{f.parts, 1}
	} else {
		to = x.scaled(x.scaled(to, f.kept, kept.flat), len(sums), "")
		dims, part.st, toSt = []int{f.parts, results}, []int{results, 1}, []int{0, 1}
	}
	at := x.address(e.global(part.at), to, g.acc.Size())
	e.stores(holds(g.acc), g.acc.Size(), at, p, sums)
	g.lift = func(_ *emitter, v string) string { return v }
	g.to = access{g.to.at, g.to.dtype, toSt} // contiguous, as results of folds are
	f.next = append(f.next, &nest{dims: dims, ins: []access{part}, folds: []folding{g},
		body: func(_ *emitter, in []string) []string { return in }})
}
