package conv

// Float is what images are made of.
type Float interface{ float32 | float64 }

// Rows is how many rows of weights a tile has.
const Rows = 4

// Kernel is one implementation for one type of elements.
type Kernel[T Float] struct {
	Name  string // "avx512", "avx2" or "plain"
	Lanes int    // elements of a vector
	// Tile computes, for each row r of four and v of two vectors, c[r·ldc + v·ldv + lane] = Σ
	// a[k·step + r·lda + lane] · b[off[k] + v·ldb + lane] over all k; with add, it adds them.
	Tile func(a []T, lda, step int, b []T, ldb int, off []int, c []T, ldc, ldv int, add bool)
	// Splat makes a vector of each element: o[k·Lanes + lane] = x[k]. It may read three elements
	// more.
	Splat func(o, x []T)
	// Sums adds the lanes of each vector: o[k] = Σ x[k·Lanes + lane], for a number of vectors that
	// 4 divides.
	Sums func(o, x []T)
	// Copy copies rows of n elements, which begin ldt and ldf elements after one another.
	Copy func(to []T, ldt int, from []T, ldf, rows, n int)
	// MaxPool is the largest of each 2×2 elements of x, whose rows are ld apart: o is rows×cols.
	// MaxPoolGrad gives the gradient gy to the first such element of the four, row by row, and 0 to
	// the others. Nil where there is none; false for a NaN, and what was written is then of no use.
	MaxPool     func(o, x []T, rows, cols, ld int) bool
	MaxPoolGrad func(gx, x, gy []T, rows, cols, ld int) bool
}

// All lists every implementation that this processor can run, the fastest first and plain Go last.
func All[T Float]() []*Kernel[T] {
	if k, ok := any(append(vectors32(), plain[float32]())).([]*Kernel[T]); ok {
		return k
	}
	return any(append(vectors64(), plain[float64]())).([]*Kernel[T])
}

// plain has vectors of five, an odd number, so that nobody relies on another.
func plain[T Float]() *Kernel[T] {
	const lanes = 5
	return &Kernel[T]{
		Name: "plain", Lanes: lanes,
		Tile: func(a []T, lda, step int, b []T, ldb int, off []int, c []T, ldc, ldv int, add bool) {
			for r := range Rows {
				for v := range 2 {
					for l := range lanes {
						var s T
						for k, o := range off {
							s += a[k*step+r*lda+l] * b[o+v*ldb+l]
						}
						if at := r*ldc + v*ldv + l; add {
							c[at] += s
						} else {
							c[at] = s
						}
					}
				}
			}
		},
		Copy: copyRows[T],
		Splat: func(o, x []T) {
			for k := range o {
				o[k] = x[k/lanes]
			}
		},
		Sums: func(o, x []T) {
			for k := range o {
				o[k] = 0
				for _, v := range x[k*lanes : (k+1)*lanes] {
					o[k] += v
				}
			}
		},
	}
}

func copyRows[T Float](to []T, ldt int, from []T, ldf, rows, n int) {
	for r := range rows {
		copy(to[r*ldt:][:n], from[r*ldf:])
	}
}
