package gemm

import "sync"

// Float is what matrices are made of.
type Float interface{ float32 | float64 }

// Product is c = op(a)·op(b), or c += op(a)·op(b): op(a) is M×K, op(b) is K×N. Matrices are stored
// by rows; a row begins LDA, LDB, LDC elements after the one before, which is at least the length
// of a stored row. The last row need not be padded.
type Product struct {
	TransA, TransB bool
	M, N, K        int
	LDA, LDB, LDC  int
	Add            bool
}

// Kernel is one implementation.
type Kernel[T Float] struct {
	Name string // "avx512" or "avx2"
	tile tile[T]
	idle sync.Pool // of *work[T]
}

// tile multiplies rows×cols elements of c, the piece that stays in registers. Operand a is read at
// r·rs + p·cs, and up to over elements past the last of them; b is read at p·ldb + j.
type tile[T Float] struct {
	rows, cols, over int
	mul              func(k int, a []T, rs, cs int, b []T, ldb int, c []T, ldc int, add bool)
}

var (
	best32 = sync.OnceValue(func() *Kernel[float32] { return first(tiles32()) })
	best64 = sync.OnceValue(func() *Kernel[float64] { return first(tiles64()) })
)

func first[T Float](ks []*Kernel[T]) *Kernel[T] {
	if len(ks) == 0 {
		return nil
	}
	return ks[0]
}

// Best is the fastest implementation that this processor can run, or nil. It is chosen once.
func Best[T Float]() *Kernel[T] {
	if k, ok := any(best32()).(*Kernel[T]); ok {
		return k
	}
	return any(best64()).(*Kernel[T])
}

// Depth is after how many steps of k a partial sum goes to memory: so many rows of a panel of b
// stay in the first cache.
const Depth = 128

const (
	tall   = 256  // rows, and
	wide   = 256  // columns of a block of c that stays in the second cache
	reuse  = 8    // tiles for which it pays to pack a panel of b that could be read where it lies
	narrow = 64   // columns below which the transposed product may be cheaper
	broad  = 1024 // columns of a transposed product that are kept until they are whole
)

// Mul multiplies. Without p.Add, what is in c before does not matter. Elements between the rows of
// c are left alone.
func (k *Kernel[T]) Mul(p Product, a, b, c []T) {
	if p.M == 0 || p.N == 0 {
		return
	}
	w, _ := k.idle.Get().(*work[T])
	if w == nil {
		w = &work[T]{tile: &k.tile}
	}
	x, y := view[T]{a, p.LDA, 1}, view[T]{b, p.LDB, 1}
	if p.TransA {
		x = x.transposed()
	}
	if p.TransB {
		y = y.transposed()
	}
	switch {
	case p.K == 0:
		for i := range p.M {
			if !p.Add {
				clear(c[i*p.LDC:][:p.N])
			}
		}
	case p.swap(k.tile.rows, k.tile.cols):
		w.swapped(p, y.transposed(), x.transposed(), c)
	default:
		w.multiply(p.M, p.N, p.K, x, y, c, p.LDC, p.Add)
	}
	k.idle.Put(w)
}

// swap says whether cᵀ = op(b)ᵀ·op(a)ᵀ takes fewer tiles, packing counted in: half a cycle for an
// element that must be turned, against five for a step of a tile.
func (p Product) swap(rows, cols int) bool {
	if p.N >= narrow || p.M <= p.N {
		return false
	}
	cost := func(m, n int, turn bool) int {
		c := 10 * ((m + rows - 1) / rows) * ((n + cols - 1) / cols)
		if turn {
			c += n
		}
		return c
	}
	return cost(p.N, p.M, !p.TransA) < cost(p.M, p.N, p.TransB)
}

// view is a matrix of which element (i, j) is data[i·rs + j·cs].
type view[T Float] struct {
	data   []T
	rs, cs int
}

func (v view[T]) transposed() view[T] { return view[T]{v.data, v.cs, v.rs} }

// from is the view without its first i rows and j columns.
func (v view[T]) from(i, j int) view[T] { return view[T]{v.data[i*v.rs+j*v.cs:], v.rs, v.cs} }
