package cpu

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// products is a batch of matrix products of strided operands, made ready. The rows of all results,
// one matrix after the other, are counted through.
type products[T device.Float] struct {
	blas.Product            // of each
	rowA         int        // elements between rows of op(a)
	dims         []int      // the batch
	batch        [2][]int   // the strides of a and b along it
	offset       [2]int     // of their first elements
	copies       [2]copying // what lays out an operand first; nil: it is read where it is
	copied       [2]int     // bytes of the copy
	gemm         func(p blas.Product, a, b, c []T)
	count        int // of all rows
	grain        int // rows that are worth a thread of their own: all of one product, which the library cuts, or of some small ones
}

// matrices is how the matrices op(x) of an operand lie.
type matrices struct {
	batch      []int // strides
	rows, cols int
	row, col   int // strides
}

// planProducts prepares a product whose operands are read by views, nil for those that are
// contiguous.
func planProducts[T device.Float](i kernels.MatMul, in []kernels.Type, views []*kernels.View, out device.Shape, g blas.Gemmer) *products[T] {
	p := &products[T]{gemm: blas.GemmFor[T](g)}
	batch := out[:len(out)-2]
	var sides [2]matrices
	for k, trans := range []bool{i.TransA, i.TransB} {
		v := kernels.ViewOf(in, views, k)
		sides[k] = matricesOf(v, trans, batch)
		if _, _, ok := sides[k].stored(); !ok {
			v = p.layOut(k, v, in[k].Dtype.Size())
			sides[k] = matricesOf(v, trans, batch)
		}
		p.offset[k] = v.Offset
	}
	a, b := sides[0], sides[1]
	p.N, p.K, p.LDC = b.cols, a.cols, b.cols
	p.count = batch.Elems() * a.rows
	a = p.gather(batch, a, b)
	p.M, p.rowA = a.rows, a.row
	p.LDA, p.TransA, _ = a.stored()
	p.LDB, p.TransB, _ = b.stored()
	p.grain = p.M
	if p.M < p.count {
		work := max(1, p.Work(batchWork))
		p.grain *= min((batchWork+work-1)/work, p.count/p.M)
	}
	return p
}

// batchWork is how many multiplications of small products one thread does at least.
const batchWork = 1 << 21

// layOut has operand k copied before each run, without what repeats along the batch, and gives the
// view of the copy.
func (p *products[T]) layOut(k int, v *kernels.View, size int) *kernels.View {
	from := &kernels.View{Shape: v.Shape.Clone(), Offset: v.Offset, Strides: v.Strides}
	for axis, st := range v.Strides[:len(v.Shape)-2] {
		if st == 0 {
			from.Shape[axis] = 1
		}
	}
	to := kernels.Whole(from.Shape)
	p.copies[k], p.copied[k] = newCopying(size, to, from), from.Shape.Elems()*size
	return &kernels.View{Shape: v.Shape, Strides: stride.Broadcast(from.Shape, v.Shape)}
}

// gather chooses the batch. Matrices of a that meet the same b become one tall matrix where they
// lie so.
func (p *products[T]) gather(batch device.Shape, a, b matrices) matrices {
	axes := append(slices.Clone(batch), a.rows)
	dims, st := stride.Collapse(axes, stride.RowMajor(axes), append(slices.Clone(a.batch), a.row), append(slices.Clone(b.batch), 0))
	tall, last := a, len(dims)-1
	tall.rows = 1
	if last >= 0 && st[2][last] == 0 {
		tall.rows, tall.row = dims[last], st[1][last]
		dims, st[1], st[2] = dims[:last], st[1][:last], st[2][:last]
	}
	if _, _, ok := tall.stored(); !ok {
		tall = a
		dims, st = stride.Collapse(batch, stride.RowMajor(batch), a.batch, b.batch)
	}
	p.dims, p.batch = dims, [2][]int{st[1], st[2]}
	return tall
}

func matricesOf(v *kernels.View, trans bool, batch device.Shape) matrices {
	r := len(v.Shape) - 2
	x := matrices{stride.Stretch(v.Strides, v.Shape[:r], batch), v.Shape[r], v.Shape[r+1], v.Strides[r], v.Strides[r+1]}
	if trans {
		x.rows, x.cols, x.row, x.col = x.cols, x.rows, x.col, x.row
	}
	return x
}

// stored says how a [blas.Gemmer] sees the matrices: the distance of their rows or, transposed, of
// their columns. Not ok where neither is contiguous.
func (x matrices) stored() (ld int, trans, ok bool) {
	if ld, ok = leading(x.rows, x.cols, x.row, x.col); ok {
		return ld, false, true
	}
	ld, ok = leading(x.cols, x.rows, x.col, x.row)
	return ld, true, ok
}

// leading is the distance of contiguous rows that do not overlap.
func leading(rows, cols, row, col int) (ld int, ok bool) {
	if rows <= 1 {
		row = max(cols, 1)
	}
	return row, (cols <= 1 || col == 1) && row >= max(cols, 1)
}

// reading is the memory of one run's operands.
type reading[T device.Float] struct {
	a, b []T
	held [2]*scratch.Memory
}

// begin lays out what must be; the caller ends it.
func (p *products[T]) begin(ins [][]byte) (r reading[T]) {
	var x [2][]T
	for k := range x {
		x[k] = device.As[T](ins[k])
		if c := p.copies[k]; c != nil {
			r.held[k] = scratch.Take(p.copied[k])
			c.copy(device.Bytes(r.held[k].Words), ins[k], 0, c.parts())
			x[k] = scratch.Elems[T](r.held[k])
		}
	}
	r.a, r.b = x[0], x[1]
	return r
}

func (r *reading[T]) end() {
	for _, s := range r.held {
		if s != nil {
			s.Free()
		}
	}
}

// rows computes rows [from, to) of the results into c.
func (p *products[T]) rows(r *reading[T], c []T, from, to int) {
	if p.K == 0 || len(c) == 0 {
		clear(c)
		return
	}
	for from < to {
		row := from % p.M
		one := p.Product
		one.M = min(p.M-row, to-from)
		a, b := p.offset[0]+row*p.rowA, p.offset[1]
		at := from / p.M
		for k := len(p.dims) - 1; k >= 0; k-- {
			i := at % p.dims[k]
			at /= p.dims[k]
			a += i * p.batch[0][k]
			b += i * p.batch[1][k]
		}
		p.gemm(one, r.a[a:], r.b[b:], c[:one.M*p.N])
		c, from = c[one.M*p.N:], from+one.M
	}
}
