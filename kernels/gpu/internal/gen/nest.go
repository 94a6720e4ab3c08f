package gen

import (
	"fmt"
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// nest is what is to be done for every element of a shape.
type nest struct {
	dims  []int
	ins   []access
	outs  []access  // what is written for every element
	folds []folding // and what is folded
	// body computes an element's outs and folds, in this order, from registers of the ins.
	body  func(e *emitter, in []string) []string
	heavy int  // about how many instructions body is
	lanes int  // elements along the last axis that one thread takes at a time; dims counts these
	wide  bool // positions or offsets need more than 31 bits
	bits  bool // body moves elements as they are, numbers or not
}

// accesses are all, folds' results last.
func (n *nest) accesses() []*access {
	var all []*access
	for k := range n.ins {
		all = append(all, &n.ins[k])
	}
	for k := range n.outs {
		all = append(all, &n.outs[k])
	}
	for k := range n.folds {
		all = append(all, &n.folds[k].to)
	}
	return all
}

// shape joins a nest's axes, and chooses its lanes and how wide indices are.
func (w *writer) shape(n *nest) {
	n.collapse(w.large)
	n.wide = w.wide || n.most() > math.MaxInt32/2
}

// collapse joins axes, and chooses the lanes; large treats a small nest as a large one.
func (n *nest) collapse(large bool) {
	all := n.accesses()
	st := make([][]int, len(all))
	for k, a := range all {
		st[k] = a.st
	}
	dims, st := stride.Collapse(n.dims, st...)
	n.dims, n.lanes = slices.Clone(dims), 1
	for k, a := range all {
		a.st = slices.Clone(st[k])
	}
	if len(dims) == 0 || !n.eachLast() {
		return
	}
	last := len(dims) - 1
	few := func() bool { return !large && product(dims)/n.lanes < 1<<15 } // then more threads are better than wide ones
	for n.lanes = n.widest(all); n.lanes > 1 && (few() || !n.fits(all)); n.lanes /= 2 {
	}
	n.dims[last] /= n.lanes
	for _, a := range all {
		a.st[last] *= n.lanes
	}
}

// widest is how many lanes there may be: as many as are 16 bytes of the largest. Where bfloat16 is
// read or written they are 16 bytes of that if they can: float32 takes two accesses then. Not so
// results, as two stores fill each sector of memory by halves, what has many registers or long
// texts, and folds that keep the last axis, which have a sum per lane.
func (n *nest) widest(all []*access) int {
	size, narrow := 4, false
	for _, a := range all {
		size = max(size, a.dtype.Size())
		narrow = narrow || a.dtype == device.BFloat16 && a.last() == 1
	}
	lanes := kernels.PlaceAlign / size
	switch {
	case !narrow, size > 4, len(n.ins) > 6, n.heavy > 60,
		slices.ContainsFunc(n.outs, func(a access) bool { return a.dtype != device.BFloat16 }),
		slices.ContainsFunc(n.folds, func(f folding) bool { return f.to.last() == 1 }):
		return lanes
	}
	return 2 * lanes
}

// unit is how many lanes one access to memory takes.
func (n *nest) unit(a access) int { return min(n.lanes, kernels.PlaceAlign/a.dtype.Size()) }

// eachLast says that what is written lies element by element along the last axis.
func (n *nest) eachLast() bool {
	return !slices.ContainsFunc(n.outs, func(a access) bool { return a.last() != 1 }) &&
		!slices.ContainsFunc(n.folds, func(f folding) bool { return f.to.last() > 1 })
}

// fits says that whole groups of lanes lie along the last axis of everything, aligned.
func (n *nest) fits(all []*access) bool {
	last := len(n.dims) - 1
	if n.dims[last]%n.lanes != 0 {
		return false
	}
	for _, a := range all {
		if a.last() != 1 {
			continue
		}
		unit := n.unit(*a)
		if a.at.Off%(unit*a.dtype.Size()) != 0 {
			return false
		}
		for _, s := range a.st[:last] {
			if s%unit != 0 {
				return false
			}
		}
	}
	return true
}

// most is the greatest position or offset.
func (n *nest) most() int {
	most := product(n.dims)
	for _, a := range n.accesses() {
		most = max(most, a.most(n.dims))
	}
	return most
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// guard is the prefix of a line that is done only where a predicate holds; p may be "".
func guard(p string) string {
	if p == "" {
		return ""
	}
	return "@" + p + " "
}

// between is how many elements lie from lane to lane.
func (n *nest) between(a access) int { return a.last() / n.lanes }

// load reads the lanes of an operand.
func (n *nest) load(e *emitter, a access, at, p string) []string {
	regs := make([]string, n.lanes)
	if n.lanes > 1 && n.between(a) == 1 {
		return n.loadVectors(e, a, at, p)
	}
	for k := range regs {
		if k > 0 && a.last() == 0 {
			regs[k] = regs[0]
			continue
		}
		regs[k] = n.loadOne(e, a, offset(at, k*n.between(a)*a.dtype.Size()), p)
	}
	return regs
}

// loadVectors is load of lanes that lie side by side.
func (n *nest) loadVectors(e *emitter, a access, at, p string) []string {
	typ, width, narrow := n.holds(a), a.dtype.Size(), a.dtype == device.BFloat16
	regs := make([]string, n.lanes)
	if narrow {
		typ, width, regs = "b32", 4, regs[:n.lanes/2]
	}
	for k := range regs {
		regs[k] = e.reg(typ)
	}
	k := 0
	for part := range slices.Chunk(regs, kernels.PlaceAlign/width) {
		suffix, text := vector(part)
		e.line("%sld.global%s.%s %s, [%s];", guard(p), suffix, typ, text, offset(at, k*width))
		k += len(part)
	}
	if narrow {
		return e.apart(n.holds(a), regs)
	}
	return regs
}

// loadOne reads one element.
func (n *nest) loadOne(e *emitter, a access, at, p string) string {
	typ := n.holds(a)
	if a.dtype == device.BFloat16 {
		word := e.reg("b32")
		e.line("%sld.global.u16 %s, [%s];", guard(p), word, at)
		return e.upper(typ, word)
	}
	r := e.reg(typ)
	e.line("%sld.global.%s %s, [%s];", guard(p), typ, r, at)
	return r
}

// store writes the lanes of a result.
func (n *nest) store(e *emitter, a access, at, p string, regs []string) {
	if n.lanes == 1 || n.between(a) != 1 {
		for k, r := range regs {
			n.storeOne(e, a, offset(at, k*n.between(a)*a.dtype.Size()), p, r)
		}
		return
	}
	typ, width := n.holds(a), a.dtype.Size()
	if a.dtype == device.BFloat16 {
		typ, width, regs = "b32", 4, e.together(typ, regs)
	}
	e.stores(typ, width, at, p, regs)
}

// stores writes registers of so many bytes one behind the other, to a place that is aligned to them
// all, or to 16 bytes.
func (e *emitter) stores(typ string, width int, at, p string, regs []string) {
	k := 0
	for part := range slices.Chunk(regs, kernels.PlaceAlign/width) {
		suffix, text := vector(part)
		e.line("%sst.global%s.%s [%s], %s;", guard(p), suffix, typ, offset(at, k*width), text)
		k += len(part)
	}
}

// storeOne writes one element.
func (n *nest) storeOne(e *emitter, a access, at, p, r string) {
	typ := n.holds(a)
	if a.dtype == device.BFloat16 {
		typ, r = "u16", e.lower(typ, r)
	}
	e.line("%sst.global.%s [%s], %s;", guard(p), typ, at, r)
}

// offset is an address some bytes further, as loads and stores take it.
func offset(at string, bytes int) string {
	if bytes == 0 {
		return at
	}
	return fmt.Sprintf("%s+%d", at, bytes)
}

// holds is the PTX type of registers that hold elements of a dtype.
func holds(d device.Dtype) string {
	if d = computed(d); d.IsFloat() {
		return typeOf(d)
	}
	return bitsOf(d)
}

// holds is the PTX type of registers that hold elements of an access.
func (n *nest) holds(a access) string {
	if n.bits {
		return bitsOf(a.dtype)
	}
	return holds(a.dtype)
}

// strip is one group of lanes under way: where its operands and results lie, and what was loaded.
type strip struct {
	n    *nest
	p    string // whether it is there; "" where it surely is
	ins  []string
	outs []string
	vals [][]string // of each operand, its lanes
}

// strip loads a group of lanes. constants are the operands that are one element, loaded before.
func (n *nest) strip(e *emitter, p string, ins, outs []string, constants map[int]string) *strip {
	s := &strip{n: n, p: p, ins: ins, outs: outs}
	for k, a := range n.ins {
		if c, ok := constants[k]; ok {
			s.vals = append(s.vals, slices.Repeat([]string{c}, n.lanes))
			continue
		}
		s.vals = append(s.vals, n.load(e, a, ins[k], p))
	}
	return s
}

// compute does the body for each lane, stores the outs, and gives the folds' values: of each fold,
// its lanes.
func (s *strip) compute(e *emitter) [][]string {
	n := s.n
	results := make([][]string, len(n.outs)+len(n.folds))
	for lane := range n.lanes {
		in := make([]string, len(n.ins))
		for k := range in {
			in[k] = s.vals[k][lane]
		}
		for k, r := range n.body(e, in) {
			results[k] = append(results[k], r)
		}
	}
	for k, a := range n.outs {
		n.store(e, a, s.outs[k], s.p, results[k])
	}
	return results[len(n.outs):]
}

// constants loads the operands that are one element.
func (n *nest) constants(e *emitter) map[int]string {
	c := map[int]string{}
	for k, a := range n.ins {
		if a.constant() {
			c[k] = n.loadOne(e, a, e.global(a.at), "")
		}
	}
	return c
}
