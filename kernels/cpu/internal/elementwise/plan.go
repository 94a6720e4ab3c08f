package elementwise

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// Plan is a [kernels.Map] made ready for operands of some types. It goes through the elements in
// tiles that stay in the first cache; each step is one loop over a tile. In a tile first all steps
// are done, then copies, then folds.
type Plan[T vec.Float] struct {
	tiling
	row    int // elements along the last axis, which are a row of [Run.Rows]; 0: it is not asked for
	loops  *vec.Loops[T]
	ins    []operand
	steps  []step[T]
	copies []outCopy // results that are operands, or the same as other results
	folds  []fold
	regs   int // registers, operands first
	rows   int // rows of scratch
	sums   int // of all folds, in a part
	each   int // sums per unit that need scratch
	part   int // units that are a part, where all is computed at once
	parts  int
	pools
}

// operand is an operand: read in place where a tile of it is one row, and laid out in scratch
// otherwise.
type operand struct {
	base    int // its first element
	strides []int
	in      inTile
	scratch int // row of scratch; −1: read in place
}

// step makes a register; one of the three loops is there.
type step[T vec.Float] struct {
	two   func(o, a, b []T)
	one   func(o, x []T)
	with  func(o, x []T, c T)
	c     T
	a, b  int // registers that it reads
	reg   int // the register that it makes
	place int // where that lies: a row of scratch, or −1−k for result k
}

// outCopy is a result that is a copy of a register.
type outCopy struct{ out, reg int }

// NewPlan prepares a map whose operands are read by views, nil for those that are contiguous. With
// byRows, [Run.Rows] may run it.
func NewPlan[T vec.Float](i kernels.Map, in []kernels.Type, views []*kernels.View, byRows bool) *Plan[T] {
	p := &Plan[T]{loops: vec.Best[T](), pools: poolsOf[device.DtypeOf[T]().Size()/8], regs: len(in) + len(i.Steps)}
	if byRows {
		p.row = i.Shape[len(i.Shape)-1]
	}
	strides := make([][]int, len(in), len(in)+len(i.Outs))
	for k := range in {
		v := kernels.ViewOf(in, views, k)
		strides[k] = stride.Stretch(v.Strides, v.Shape, i.Shape)
		p.ins = append(p.ins, operand{base: v.Offset})
	}
	for k, o := range i.Outs {
		if o.Fold == nil {
			continue
		}
		f, st := newFold(*o.Fold, i.Shape)
		f.out = k
		p.folds, strides = append(p.folds, f), append(strides, st)
	}
	p.tile(i, strides)
	p.allot(i, len(in))
	p.share(i)
	return p
}

// tile chooses the tiles, and how everything steps through them.
func (p *Plan[T]) tile(i kernels.Map, strides [][]int) {
	dims, st := stride.Collapse(i.Shape, strides...)
	if len(dims) == 0 { // one element
		dims = []int{1}
		for k := range st {
			st[k] = []int{1}
		}
	}
	n := tileLen(device.DtypeOf[T]().Size(), dims, st[:len(p.ins)])
	if len(i.Steps) == 0 { // nothing needs to stay in the first cache
		n *= 8
	}
	p.tiling = newTiling(dims, n, p.row)
	for k := range p.ins {
		o := &p.ins[k]
		o.strides, o.in, o.scratch = st[k], p.within(st[k]), -1
		if !o.in.contiguous() {
			o.scratch = p.rows
			p.rows++
		}
	}
	for k := range p.folds {
		f := &p.folds[k]
		f.strides = st[len(p.ins)+k]
		f.in = p.within(f.strides)
		p.sums = f.place(&p.tiling, p.sums)
		p.each = max(p.each, f.each)
	}
}

// share makes parts that are worth a goroutine each. They do not depend on how many there are,
// because sums do on the parts.
func (p *Plan[T]) share(i kernels.Map) {
	const work = 512 << 10
	n := p.units * p.inner
	p.parts = max(n*weight(i, len(p.ins))/work, 1)
	if p.sums > 0 { // sums of parts are to cost little beside the elements
		p.parts = max(1, min(p.parts, 16, n/16/p.sums))
	}
	p.part = (p.units + p.parts - 1) / p.parts
	p.part = (p.part + p.step - 1) / p.step * p.step
	p.parts = max(1, (p.units+p.part-1)/max(p.part, 1))
}

// weight is about what an element of a map costs, in additions.
func weight(i kernels.Map, operands int) int {
	w := operands + len(i.Outs)
	for _, s := range i.Steps {
		switch op := s.Op.(type) {
		case kernels.Unary:
			w += op.Fn.Weight()
		case kernels.Binary:
			w += op.Fn.Weight()
		}
	}
	return w
}

// allot makes the steps that are needed, and finds places for their registers: the result that a
// register is, or a row of scratch, which is free again after the last step that reads it.
func (p *Plan[T]) allot(i kernels.Map, n int) {
	last := i.LastReads(n)
	place := map[int]int{}
	for k, o := range i.Outs {
		if o.Fold != nil {
			continue
		}
		if _, taken := place[o.Reg]; taken || o.Reg < n {
			p.copies = append(p.copies, outCopy{k, o.Reg})
		} else {
			place[o.Reg] = -1 - k
		}
	}
	for k := range p.folds {
		p.folds[k].reg = i.Outs[p.folds[k].out].Reg
	}
	var free []int
	for k, s := range i.Steps {
		if last[n+k] < 0 {
			continue
		}
		for _, r := range slices.Compact(slices.Clone(s.Reads())) {
			if at, made := place[r]; made && at >= 0 && last[r] == k {
				free = append(free, at)
			}
		}
		if _, fixed := place[n+k]; !fixed {
			if len(free) == 0 {
				free = append(free, p.rows)
				p.rows++
			}
			place[n+k], free = free[len(free)-1], free[:len(free)-1]
		}
		p.steps = append(p.steps, newStep(p.loops, s, n+k, place[n+k]))
	}
}

func newStep[T vec.Float](l *vec.Loops[T], s kernels.Step, reg, place int) step[T] {
	st := step[T]{a: s.Args[0], b: s.Args[1], reg: reg, place: place}
	switch op := s.Op.(type) {
	case kernels.Binary:
		st.two = binaryLoop(l, op.Fn)
	case kernels.Unary:
		switch op.Fn {
		case kernels.Scale:
			st.with, st.c = l.Scale, T(op.C)
		case kernels.Shift:
			st.with, st.c = l.Shift, T(op.C)
		default:
			st.one = unaryLoop(l, op.Fn)
		}
	}
	return st
}
