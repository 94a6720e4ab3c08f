package kernels

import (
	"github.com/weft-project/weft/device"
)

// product is one matrix product c = op(a)·op(b), or c += op(a)·op(b): op(a) is m×k, op(b) is k×n. Matrices are stored by rows; a row
// begins lda, ldb, ldc elements after the one before, which is at least the length of a stored row. The last row need not be padded.
type product struct {
	transA, transB bool
	m, n, k        int
	lda, ldb, ldc  int
	add            bool
}

// contiguous is the product of matrices without gaps.
func contiguous(transA, transB bool, m, n, k int) product {
	p := product{transA: transA, transB: transB, m: m, n: n, k: k, ldc: n}
	_, p.lda = p.storedA()
	_, p.ldb = p.storedB()
	return p
}

// storedA and storedB are the rows and columns of a and b as they lie in memory.
func (p product) storedA() (rows, cols int) {
	if p.transA {
		return p.k, p.m
	}
	return p.m, p.k
}

func (p product) storedB() (rows, cols int) {
	if p.transB {
		return p.n, p.k
	}
	return p.k, p.n
}

// gemmer computes matrix products on the calling thread; m, n and k are not 0. Without add, what is in c before does not matter. Elements
// between the rows of c are left alone.
type gemmer interface {
	sgemm(p product, a, b, c []float32)
	dgemm(p product, a, b, c []float64)
	// cut is the size of the pieces of c that several threads may compute at once. It depends on the extents alone unless the pieces are, bit
	// for bit, those of the whole.
	cut(p product) (rows, cols int)
}

// work is the number of multiplications, or most where it is more.
func (p product) work(most int) int {
	if p.m > most || p.n > most || p.m*p.n > most || p.k > most {
		return most
	}
	return min(most, p.m*p.n*p.k)
}

// mostForLoop is up to how many multiplications a plain loop is faster than the call of a library. It is of extents alone, so that a result
// does not depend on anything else either.
const mostForLoop = 200

// multiply computes one product, of any extents, on as many threads as pay.
func multiply[T device.Float](p product, g gemmer, a, b, c []T) {
	if p.m == 0 || p.n == 0 {
		return
	}
	if p.k == 0 || p.work(mostForLoop+1) <= mostForLoop {
		plainGemm(p, a, b, c)
		return
	}
	rows, cols := g.cut(p)
	if rows >= p.m && cols >= p.n {
		of(g, p, a, b, c)
		return
	}
	k := cutProducts.Get().(*cutProduct)
	k.hold(g, p, rows, cols)
	switch a := any(a).(type) {
	case []float32:
		k.s = [3][]float32{a, any(b).([]float32), any(c).([]float32)}
	case []float64:
		k.d = [3][]float64{a, any(b).([]float64), any(c).([]float64)}
	}
	spread(k.down*k.across, 1, k)
	*k = cutProduct{}
	cutProducts.Put(k)
}

// of is a library's product.
func of[T device.Float](g gemmer, p product, a, b, c []T) {
	switch a := any(a).(type) {
	case []float32:
		g.sgemm(p, a, any(b).([]float32), any(c).([]float32))
	case []float64:
		g.dgemm(p, a, any(b).([]float64), any(c).([]float64))
	}
}

// gemmFor is multiply by a library.
func gemmFor[T device.Float](g gemmer) func(p product, a, b, c []T) {
	return func(p product, a, b, c []T) { multiply(p, g, a, b, c) }
}

// plainGemm goes along the rows of b, or, where b is stored transposed, takes dot products with them.
func plainGemm[T device.Float](p product, a, b, c []T) {
	row, col := p.lda, 1
	if p.transA {
		row, col = 1, p.lda
	}
	for i := range p.m {
		ci := c[i*p.ldc:][:p.n]
		if !p.add {
			clear(ci)
		}
		if !p.transB || p.k == 0 {
			for l := range p.k {
				v := a[i*row+l*col]
				for j, w := range b[l*p.ldb:][:p.n] {
					ci[j] += v * w
				}
			}
			continue
		}
		for j := range ci {
			var s T
			for l, w := range b[j*p.ldb:][:p.k] {
				s += a[i*row+l*col] * w
			}
			ci[j] += s
		}
	}
}

// plain is the gemmer of plain loops.
type plain struct{}

func (plain) sgemm(p product, a, b, c []float32) { plainGemm(p, a, b, c) }
func (plain) dgemm(p product, a, b, c []float64) { plainGemm(p, a, b, c) }

func (plain) cut(p product) (rows, cols int) { return p.m, p.n }
