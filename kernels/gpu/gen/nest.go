package gen

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/stride"
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
	size := 4
	for k, a := range all {
		a.st = slices.Clone(st[k])
		size = max(size, a.dtype.Size())
	}
	if len(dims) == 0 || !n.eachLast() {
		return
	}
	last := len(dims) - 1
	few := func() bool { return !large && product(dims)/n.lanes < 1<<15 } // then more threads are better than wide ones
	for n.lanes = kernels.PlaceAlign / size; n.lanes > 1 && (few() || !n.fits(all)); n.lanes /= 2 {
	}
	n.dims[last] /= n.lanes
	for _, a := range all {
		a.st[last] *= n.lanes
	}
}

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
		if a.at.Off%(n.lanes*a.dtype.Size()) != 0 {
			return false
		}
		for _, s := range a.st[:last] {
			if s%n.lanes != 0 {
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

// load reads the lanes of an operand. typ is what its registers hold.
func (n *nest) load(e *emitter, a access, typ, at, p string) []string {
	regs := make([]string, n.lanes)
	if n.lanes > 1 && n.between(a) == 1 {
		for k := range regs {
			regs[k] = e.reg(typ)
		}
		e.line("%sld.global.v%d.%s {%s}, [%s];", guard(p), n.lanes, typ, strings.Join(regs, ", "), at)
		return regs
	}
	for k := range regs {
		if k > 0 && a.last() == 0 {
			regs[k] = regs[0]
			continue
		}
		regs[k] = e.reg(typ)
		e.line("%sld.global.%s %s, [%s];", guard(p), typ, regs[k], offset(at, k*n.between(a)*a.dtype.Size()))
	}
	return regs
}

// store writes the lanes of a result.
func (n *nest) store(e *emitter, a access, typ, at, p string, regs []string) {
	if n.lanes > 1 && n.between(a) == 1 {
		e.line("%sst.global.v%d.%s [%s], {%s};", guard(p), n.lanes, typ, at, strings.Join(regs, ", "))
		return
	}
	for k, r := range regs {
		e.line("%sst.global.%s [%s], %s;", guard(p), typ, offset(at, k*n.between(a)*a.dtype.Size()), r)
	}
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
	if d.IsFloat() {
		return typeOf(d)
	}
	return bitsOf(d)
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
		s.vals = append(s.vals, n.load(e, a, holds(a.dtype), ins[k], p))
	}
	return s
}

// compute does the body for each lane, stores the outs, and gives the folds' values: of each fold, its lanes.
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
		n.store(e, a, holds(a.dtype), s.outs[k], s.p, results[k])
	}
	return results[len(n.outs):]
}

// constants loads the operands that are one element.
func (n *nest) constants(e *emitter) map[int]string {
	c := map[int]string{}
	for k, a := range n.ins {
		if a.constant() {
			c[k] = e.reg(holds(a.dtype))
			e.line("ld.global.%s %s, [%s];", holds(a.dtype), c[k], e.global(a.at))
		}
	}
	return c
}
