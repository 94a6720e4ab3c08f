package elementwise

import (
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// Map runs a map over all of its elements.
func Map[T vec.Float](i kernels.Map, in []kernels.Type, views []*kernels.View) parallel.Body {
	p := NewPlan[T](i, in, views, false)
	return func(outs, ins [][]byte) error {
		p.Begin(outs, ins, p.parts).all()
		return nil
	}
}

// Run is one run of a plan. Its rows, of everything along the shape's last axis, may be run in
// pieces. Sums are kept per part: parts may be run at once by goroutines of their own, the rows of
// one part in order. So what comes out depends on the cut into parts, and not on who runs them.
type Run[T vec.Float] struct {
	p         *Plan[T]
	outs, ins [][]T
	acc       []float64 // of all parts
}

// Begin starts a run of some parts; the memory is the run's until [Run.End]. An operand that
// [Run.Rows] is given may be nil.
func (p *Plan[T]) Begin(outs, ins [][]byte, parts int) *Run[T] {
	r := take[Run[T]](p.run)
	r.p = p
	for _, b := range outs {
		r.outs = append(r.outs, device.As[T](b))
	}
	for _, b := range ins {
		r.ins = append(r.ins, device.As[T](b))
	}
	r.acc = grown(r.acc, parts*p.sums)
	for k := range p.folds {
		f := &p.folds[k]
		for at := f.at; at < len(r.acc) && f.each == 0; at += p.sums {
			f.clear(r.acc[at : at+f.n*f.copies])
		}
	}
	return r
}

// all computes everything, in the plan's parts, and ends the run.
func (r *Run[T]) all() {
	parallel.For(r.p.units, r.p.part, r)
	r.End()
}

// Piece computes a part.
func (r *Run[T]) Piece(from, to int) { r.units(from/r.p.part, from, to, nil) }

// Rows computes rows [from, to). Where first is not nil, it holds those of operand 0.
func (r *Run[T]) Rows(part, from, to int, first []T) {
	r.units(part, from*r.p.row/r.p.inner, to*r.p.row/r.p.inner, first)
}

// End writes what was folded, and lets go of the memory.
func (r *Run[T]) End() {
	for k := range r.p.folds {
		if f := &r.p.folds[k]; f.each == 0 {
			finish(f, r.outs[f.out], r.acc, r.p.sums)
		}
	}
	clear(r.outs)
	clear(r.ins)
	r.outs, r.ins = r.outs[:0], r.ins[:0]
	r.p.run.Put(r)
}

// units computes units [from, to) of the tiling.
func (r *Run[T]) units(part, from, to int, first []T) {
	p := r.p
	s := take[tiles[T]](p.tiles)
	s.bind(p)
	for u, m := from, 0; u < to; u += m {
		m = min(p.step, to-u, p.dims[p.axis]-u%p.dims[p.axis])
		p.at(u, &s.idx)
		s.load(r, m, first)
		if first != nil {
			s.regs[0], first = first, first[m*p.inner:]
		}
		s.compute(r, u*p.inner, m*p.inner)
		for k := range p.folds {
			f := &p.folds[k]
			at, x := p.offset(&s.idx, f.strides), s.regs[f.reg][:m*p.inner]
			if f.each == 0 {
				add(p.loops, f, r.acc[part*p.sums+f.at+at:], x, m)
				continue
			}
			sums := s.sums[:m*f.each]
			f.clear(sums)
			add(p.loops, f, sums, x, m)
			write(f, r.outs[f.out][at:], sums)
		}
	}
	s.forget()
	p.tiles.Put(s)
}

// tiles is the scratch of one goroutine that runs tiles of a plan.
type tiles[T vec.Float] struct {
	idx  tileIndex
	mem  []T
	regs [][]T  // by register, of the present tile
	laid []laid // by operand
	sums []float64
}

// laid is what lies in an operand's row of scratch: m units from off.
type laid struct{ off, m int }

func (s *tiles[T]) bind(p *Plan[T]) {
	s.mem = grown(s.mem, p.rows*p.step*p.inner)
	s.regs, s.laid = grown(s.regs, p.regs), grown(s.laid, len(p.ins))
	clear(s.laid)
	s.sums = grown(s.sums, p.each*p.step)
}

// forget drops what points to the memory of others.
func (s *tiles[T]) forget() { clear(s.regs) }

// row is a row of scratch of n elements.
func (s *tiles[T]) row(p *Plan[T], k, n int) []T {
	at := k * p.step * p.inner
	return s.mem[at : at+n]
}

// load finds or lays out the operands of a tile of m units.
func (s *tiles[T]) load(r *Run[T], m int, first []T) {
	n := m * r.p.inner
	for k := range r.p.ins {
		if k == 0 && first != nil {
			continue
		}
		o := &r.p.ins[k]
		off := o.base + r.p.offset(&s.idx, o.strides)
		if o.scratch < 0 {
			s.regs[k] = r.ins[k][off : off+n]
			continue
		}
		row := s.row(r.p, o.scratch, n)
		if l := s.laid[k]; l.off != off || l.m < m {
			gather(row, r.ins[k][off:], m*o.in.mul, o.in.step, o.in.dims, o.in.strides)
			s.laid[k] = laid{off, m}
		}
		s.regs[k] = row
	}
}

// compute does the steps of a tile of n elements, the first of which is at.
func (s *tiles[T]) compute(r *Run[T], at, n int) {
	for k := range r.p.steps {
		st := &r.p.steps[k]
		var o []T
		if st.place < 0 {
			o = r.outs[-1-st.place][at : at+n]
		} else {
			o = s.row(r.p, st.place, n)
		}
		st.apply(o, s.regs[st.a], s.regs[st.b])
		s.regs[st.reg] = o
	}
	for _, c := range r.p.copies {
		if o, x := r.outs[c.out][at:at+n], s.regs[c.reg]; &o[0] != &x[0] { // a product may lie in its place already
			copy(o, x)
		}
	}
}

// apply is the step's loop over rows; b is read by functions of two.
func (st *step[T]) apply(o, a, b []T) {
	switch {
	case st.two != nil:
		st.two(o, a, b)
	case st.one != nil:
		st.one(o, a)
	default:
		st.with(o, a, st.c)
	}
}

// pools keep scratch between runs. They are the process's, as the heap is: so all maps of a program
// work in the same few kilobytes, which stay in the first cache.
type pools struct{ run, tiles *sync.Pool }

var poolsOf = [2]pools{{new(sync.Pool), new(sync.Pool)}, {new(sync.Pool), new(sync.Pool)}}

func take[E any](p *sync.Pool) *E {
	if e, ok := p.Get().(*E); ok {
		return e
	}
	return new(E)
}

// grown is a slice of length n, on the same memory where that is large enough.
func grown[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
