package cpu

import (
	"math"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/finite"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
)

// attention is what both directions share. Some rows of queries at a time meet all keys that they
// see, so that their scores stay in the second cache and a softmax has its whole row.
type attention[T vec.Float] struct {
	v        *vec.Loops[T]
	multiply func(p blas.Product, a, b, c []T)
	b, heads int
	share    int // heads that have the keys and values of one
	t, s, d  int // rows of queries, of keys, and their extent
	causal   bool
	mask     *masking // nil: none
	drop     *dropping
	scale    T   // of scores
	kept     T   // by what a weight that is not dropped is multiplied
	block    int // rows of queries at a time
	grain    int // heads that are worth a thread of their own
	in       []*headed
	turn     [3]copying // of the keys and values of a head, so that its rows become columns
	idle     sync.Pool
}

const (
	// attentionRows is how many rows of queries make a block: more waste more of what a causal row
	// does not see, fewer read k and v more often.
	attentionRows = 32
	// attentionWork is how many multiplications of scores are worth a thread.
	attentionWork = 1 << 21
)

// headed is how the rows of an operand or result lie: of batch b and head h, row r begins at offset
// + b·batch + h·head + r·row.
type headed struct {
	offset, batch, row, head int
	lay                      copying // what makes it so from the operand as it is; nil: it lies so
	bytes                    int     // of what lay makes
}

// headedBy is an operand (b, t, heads, d), or logarithms, seen by a view.
func headedBy(v *kernels.View, size int) *headed {
	h := &headed{}
	to := kernels.Whole(v.Shape)
	if row, ok := rowsOfHeads(v); ok {
		h.row = row
	} else if !v.Equal(to) {
		h.lay, h.bytes = newCopying(size, to, v), v.Shape.Elems()*size
		v = to
		h.row = v.Strides[1]
	}
	h.offset, h.batch, h.head = v.Offset, v.Strides[0], v.Strides[2]
	return h
}

// rowsOfHeads is the distance of the rows of a head, if they are contiguous and do not overlap.
func rowsOfHeads(v *kernels.View) (row int, ok bool) {
	if len(v.Shape) != 4 {
		return 0, false
	}
	return leading(v.Shape[1], v.Shape[3], v.Strides[1], v.Strides[3])
}

// at is where the rows of a head begin.
func (h *headed) at(b, head int) int { return h.offset + b*h.batch + head*h.head }

// plan is for attention or its gradient, of whose operands the first so many are always there.
func (a *attention[T]) plan(i kernels.Attention, first int, in []kernels.Type, views []*kernels.View, g blas.Gemmer) {
	q, k := in[0].Shape, in[1].Shape
	a.v, a.multiply = vec.Best[T](), blas.GemmFor[T](g)
	a.b, a.heads, a.t, a.s, a.d, a.causal, a.scale = q[0], q[2], q[1], k[1], q[3], i.Causal, 1
	a.share = max(1, a.heads/max(1, k[2]))
	if a.d > 0 {
		a.scale = T(1 / math.Sqrt(float64(a.d)))
	}
	for n, t := range in[:first] {
		a.in = append(a.in, headedBy(kernels.ViewOf(in, views, n), t.Dtype.Size()))
	}
	if i.Masked {
		a.mask = maskedBy(kernels.ViewOf(in, views, first))
	}
	if i.Drop > 0 {
		a.drop = &dropping{threshold(1 - i.Drop), (a.s + 3) / 4}
		a.kept = T(1 / (1 - i.Drop)) // with 1 nothing is kept, and nothing scaled
	}
	a.block = max(1, min(a.t, attentionRows))
	a.grain = max(1, attentionWork/max(1, blas.Product{M: a.t, N: a.s, K: a.d}.Work(attentionWork)))
	turned := device.Shape{a.d, a.s}
	for n := 1; n < 3; n++ {
		a.turn[n] = newCopying(in[n].Dtype.Size(), kernels.Whole(turned), &kernels.View{Shape: turned, Offset: 0, Strides: []int{1, a.in[n].row}})
	}
}

// seen is how many keys a row sees.
func (a *attention[T]) seen(row int) int {
	if a.causal {
		return a.s - a.t + row + 1
	}
	return a.s
}

// attending is the memory of a run.
type attending[T vec.Float] struct {
	in   [6][]T
	out  [3][]T
	lay  [6]*scratch.Memory
	mask []T
	key  philox
}

func (a *attention[T]) begin(r *attending[T], outs, ins [][]byte) {
	if a.drop != nil {
		r.key = keyOf(ins[len(ins)-1])
	}
	if a.mask != nil {
		r.mask = device.As[T](ins[len(a.in)])
	}
	for n, x := range ins[:len(a.in)] {
		r.in[n] = device.As[T](x)
		if h := a.in[n]; h.lay != nil {
			r.lay[n] = scratch.Take(h.bytes)
			h.lay.copy(device.Bytes(r.lay[n].Words), x, 0, h.lay.parts())
			r.in[n] = scratch.Elems[T](r.lay[n])
		}
	}
	for n, x := range outs {
		r.out[n] = device.As[T](x)
	}
}

func (r *attending[T]) end() {
	for _, s := range r.lay {
		if s != nil {
			s.Free()
		}
	}
	*r = attending[T]{}
}

// rows is operand n from row on of a head.
func (a *attention[T]) rows(r *attending[T], n, b, head, row int) (x []T, ld int) {
	if n == 1 || n == 2 {
		head /= a.share
	}
	h := a.in[n]
	return from(r.in[n], h.at(b, head)+row*h.row), h.row
}

// from is x without its first n elements; nothing where there are fewer.
func from[T any](x []T, n int) []T { return x[min(n, len(x)):] }

// scaled writes n rows of queries, scaled, into to.
func (a *attention[T]) scaled(to, q []T, ld, n int) {
	for r := range n {
		a.v.Scale(to[r*a.d:(r+1)*a.d], q[r*ld:r*ld+a.d], a.scale)
	}
}

// turned writes the keys (1) or values (2) of a head into to, column by column: libraries multiply
// small matrices fastest so.
func (a *attention[T]) turned(to []T, r *attending[T], n, b, head int) {
	x, _ := a.rows(r, n, b, head, 0)
	a.turn[n].copy(device.Bytes(to), device.Bytes(x), 0, a.turn[n].parts())
}

// dots are the products of n rows with the first hi keys or values, which are turned.
func (a *attention[T]) dots(to, x []T, ld int, turned []T, n, hi int) {
	a.multiply(blas.Product{M: n, N: hi, K: a.d, LDA: ld, LDB: a.s, LDC: hi}, x, turned, to)
}

// touched says that rows of a result may be NaN by what their queries do not see: in a block, a
// row's probabilities of keys that only later rows see are 0, and are multiplied. A block of one
// row has none such.
func (a *attention[T]) touched(x []T, rows, ld int) bool {
	if !a.causal || a.block == 1 {
		return false
	}
	for j := range rows {
		if finite.AnyNaN(x[j*ld:][:a.d]) {
			return true
		}
	}
	return false
}

func attentionBody[T vec.Float](i kernels.Attention, in []kernels.Type, views []*kernels.View, g blas.Gemmer) parallel.Body {
	a := &attention[T]{}
	a.plan(i, 3, in, views, g)
	a.idle.New = func() any { return &attentionRun[T]{a: a} }
	return func(outs, ins [][]byte) error {
		r := a.idle.Get().(*attentionRun[T])
		a.begin(&r.attending, outs, ins)
		parallel.For(a.b*a.heads, a.grain, r)
		r.end()
		a.idle.Put(r)
		return nil
	}
}

// attentionRun is one run; its pieces are heads.
type attentionRun[T vec.Float] struct {
	a *attention[T]
	attending[T]
}

// Piece implements [parallel.Work].
func (r *attentionRun[T]) Piece(lo, hi int) {
	a := r.a
	nk, nq, ns := a.s*a.d, a.block*a.d, a.block*a.s
	s := scratch.Take((nk + nq + ns + a.block) * device.DtypeOf[T]().Size())
	x := scratch.Elems[T](s)
	k, q, scores, most := x[:nk], x[nk:][:nq], x[nk+nq:][:ns], x[nk+nq+ns:][:a.block]
	for ; lo < hi; lo++ {
		b, head := lo/a.heads, lo%a.heads
		a.turned(k, &r.attending, 1, b, head)
		for row := 0; row < a.t; row += a.block {
			r.block(b, head, row, min(a.block, a.t-row), k, q, scores, most)
		}
		y := from(r.out[0], (b*a.t*a.heads+head)*a.d)
		if a.touched(y, a.t, a.heads*a.d) {
			for row := range a.t {
				r.block(b, head, row, 1, k, q, scores, most)
			}
		}
	}
	s.Free()
}

// block computes n rows of a head, from one on. Of the scratch that it is given, the keys are
// there.
func (r *attentionRun[T]) block(b, head, row, n int, k, q, scores, most []T) {
	a := r.a
	hi := a.seen(row + n - 1)
	x, ld := a.rows(&r.attending, 0, b, head, row)
	v, ldv := a.rows(&r.attending, 2, b, head, 0)
	a.scaled(q, x, ld, n)
	a.dots(scores, q, a.d, k, n, hi)
	sums := r.out[1][(b*a.heads+head)*a.t+row:][:n]
	for j := range n {
		line := scores[j*hi : (j+1)*hi]
		see := line[:a.seen(row+j)]
		a.masks(&r.attending, see, b, head, row+j)
		most[j] = a.v.Max(see)
		clear(line[len(see):])
		if sums[j] = 0; a.hidden(most[j]) {
			clear(see)
			continue
		}
		sum := a.v.ExpSum(see, see, most[j])
		a.v.Scale(see, see, T(1/sum))
		a.drops(&r.attending, see, b, head, row+j)
		sums[j] = T(sum)
	}
	a.v.Log(sums, sums)
	a.v.Add(sums, sums, most[:n])
	y := from(r.out[0], ((b*a.t+row)*a.heads+head)*a.d)
	a.multiply(blas.Product{M: n, N: a.d, K: hi, LDA: hi, LDB: ldv, LDC: a.heads * a.d}, scores, v, y)
}
