package cpu

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
)

// attentionBackward computes the probabilities again, a block of queries at a time, and adds up the
// gradients of keys and values over them.
type attentionBackward[T vec.Float] struct {
	attention[T]
	out  [3]headed
	keys int // heads of keys
}

func attentionGradBody[T vec.Float](i kernels.AttentionGrad, in []kernels.Type, views []*kernels.View, g blas.Gemmer) parallel.Body {
	a := &attentionBackward[T]{}
	a.plan(i.Of(), 6, in, views, g)
	a.keys = in[1].Shape[2]
	offset, all := 0, (a.heads+2*a.keys)*a.d
	for n := range a.out {
		rows, width := a.t, a.heads*a.d
		if n > 0 {
			rows, width = a.s, a.keys*a.d
		}
		a.out[n] = headed{batch: rows * width, row: width, head: a.d}
		if i.Joined {
			a.out[n] = headed{offset: offset, batch: rows * all, row: all, head: a.d}
		}
		offset += width
	}
	a.idle.New = func() any { return &attentionGradRun[T]{a: a} }
	return func(outs, ins [][]byte) error {
		r := a.idle.Get().(*attentionGradRun[T])
		a.begin(&r.attending, outs, ins)
		for n := len(outs); n < 3; n++ {
			r.attending.out[n] = r.attending.out[0]
		}
		parallel.For(a.b*a.keys, max(1, a.grain/a.share), r)
		r.end()
		a.idle.Put(r)
		return nil
	}
}

// attentionGradRun is one run; its pieces are heads of keys.
type attentionGradRun[T vec.Float] struct {
	a *attentionBackward[T]
	attending[T]
}

// attentionScratch is what a head needs: its keys and values, turned; and a block: its scaled
// queries, and probabilities and their gradients, which become those of the scores.
type attentionScratch[T vec.Float] struct{ k, v, q, p, gp []T }

// Piece implements [parallel.Work].
func (r *attentionGradRun[T]) Piece(lo, hi int) {
	a := r.a
	nk, nq, np := a.s*a.d, a.block*a.d, a.block*a.s
	s := scratch.Take((2*nk + nq + 2*np) * device.DtypeOf[T]().Size())
	x := scratch.Elems[T](s)
	at := attentionScratch[T]{x[:nk], x[nk:][:nk], x[2*nk:][:nq], x[2*nk+nq:][:np], x[2*nk+nq+np:][:np]}
	for ; lo < hi; lo++ {
		b, head := lo/a.keys, lo%a.keys*a.share
		if a.t == 0 {
			r.nothing(b, head)
		}
		a.turned(at.k, &r.attending, 1, b, head)
		a.turned(at.v, &r.attending, 2, b, head)
		r.blocks(b, head, a.block, at)
		if r.spoilt(b, head) {
			r.blocks(b, head, 1, at)
		}
	}
	s.Free()
}

// spoilt says whether any result of heads that share keys is touched.
func (r *attentionGradRun[T]) spoilt(b, first int) bool {
	a := r.a
	for head := first; head < first+a.share; head++ {
		if x, ld := r.to(0, b, head); a.touched(x, a.t, ld) {
			return true
		}
	}
	for n := 1; n < 3; n++ {
		if x, ld := r.to(n, b, first); a.touched(x, a.s, ld) {
			return true
		}
	}
	return false
}

// blocks computes the gradients of heads that share keys, some rows of queries at a time.
func (r *attentionGradRun[T]) blocks(b, first, rows int, s attentionScratch[T]) {
	t := r.a.t
	last := (t - 1) / rows * rows
	for head := first; head < first+r.a.share; head++ {
		for row := last; row >= 0 && t > 0; row -= rows { // the last sees all keys
			r.block(b, head, row, min(rows, t-row), s, head > first || row < last)
		}
	}
}

// to is where the rows of a head of result n begin, and their distance.
func (r *attentionGradRun[T]) to(n, b, head int) (x []T, ld int) {
	if n > 0 {
		head /= r.a.share
	}
	o := &r.a.out[n]
	return from(r.attending.out[n], o.at(b, head)), o.row
}

// nothing is the gradient of keys and values that no query sees.
func (r *attentionGradRun[T]) nothing(b, head int) {
	for n := 1; n < 3; n++ {
		x, ld := r.to(n, b, head)
		for j := range r.a.s {
			clear(x[j*ld:][:r.a.d])
		}
	}
}

// block adds the gradients of keys and values by n rows of queries, or sets them, and computes that
// of the queries.
func (r *attentionGradRun[T]) block(b, head, row, n int, s attentionScratch[T], add bool) {
	a := r.a
	hi := a.seen(row + n - 1)
	q, ldq := a.rows(&r.attending, 0, b, head, row)
	k, ldk := a.rows(&r.attending, 1, b, head, 0)
	gy, ldy := a.rows(&r.attending, 5, b, head, row)
	gq, ldgq := r.to(0, b, head)
	gk, ldgk := r.to(1, b, head)
	gv, ldgv := r.to(2, b, head)
	gq = from(gq, row*ldgq)
	a.scaled(s.q, q, ldq, n)
	a.dots(s.p, s.q, a.d, s.k, n, hi)
	a.dots(s.gp, gy, ldy, s.v, n, hi)
	r.softmax(b, head, row, n, hi, s)
	a.multiply(blas.Product{TransA: true, M: hi, N: a.d, K: n, LDA: hi, LDB: ldy, LDC: ldgv, Add: add}, s.p, gy, gv)
	a.multiply(blas.Product{TransA: true, M: hi, N: a.d, K: n, LDA: hi, LDB: a.d, LDC: ldgk, Add: add}, s.gp, s.q, gk)
	a.multiply(blas.Product{M: n, N: a.d, K: hi, LDA: hi, LDB: ldk, LDC: ldgq}, s.gp, k, gq)
	for j := range n {
		line := gq[j*ldgq:][:a.d]
		a.v.Scale(line, line, a.scale)
	}
}

// softmax makes probabilities of scores, and of the gradients of probabilities those of scores:
// p·(gp − y·gy), because y·gy is Σ p·gp. What is dropped of p has no part in gp.
func (r *attentionGradRun[T]) softmax(b, head, row, n, hi int, s attentionScratch[T]) {
	a := r.a
	y, ldy := a.rows(&r.attending, 3, b, head, row)
	gy, ldg := a.rows(&r.attending, 5, b, head, row)
	sums := r.in[4][(b*a.heads+head)*a.t+row:][:n]
	for j := range n {
		see := a.seen(row + j)
		p, gp := s.p[j*hi:(j+1)*hi], s.gp[j*hi:(j+1)*hi]
		if a.hidden(sums[j]) {
			clear(p)
			clear(gp)
			continue
		}
		a.masks(&r.attending, p[:see], b, head, row+j)
		a.v.ExpSum(p[:see], p[:see], sums[j])
		a.drops(&r.attending, gp[:see], b, head, row+j)
		a.v.Shift(gp[:see], gp[:see], T(-a.v.Dot(y[j*ldy:][:a.d], gy[j*ldg:][:a.d])))
		a.v.Mul(gp[:see], gp[:see], p[:see])
		a.drops(&r.attending, p[:see], b, head, row+j)
		clear(p[see:])
		clear(gp[see:])
	}
}
