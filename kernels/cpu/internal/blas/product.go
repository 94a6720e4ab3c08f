package blas

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/cpu/internal/gemm"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// Product is one matrix product, as package gemm has it: c = op(a)·op(b), or c += op(a)·op(b).
type Product gemm.Product

// Contiguous is the product of matrices without gaps.
func Contiguous(transA, transB bool, m, n, k int) Product {
	p := Product{TransA: transA, TransB: transB, M: m, N: n, K: k, LDC: n}
	_, p.LDA = p.storedA()
	_, p.LDB = p.storedB()
	return p
}

// storedA and storedB are the rows and columns of a and b as they lie in memory.
func (p Product) storedA() (rows, cols int) {
	if p.TransA {
		return p.K, p.M
	}
	return p.M, p.K
}

func (p Product) storedB() (rows, cols int) {
	if p.TransB {
		return p.N, p.K
	}
	return p.K, p.N
}

// Gemmer computes matrix products on the calling thread; M, N and K are not 0. Without Add, what is
// in c before does not matter. Elements between the rows of c are left alone.
type Gemmer interface {
	sgemm(p Product, a, b, c []float32)
	dgemm(p Product, a, b, c []float64)
	// cut is the size of the pieces of c that several threads may compute at once. It depends on
	// the extents alone unless the pieces are, bit for bit, those of the whole.
	cut(p Product) (rows, cols int)
}

// Work is the number of multiplications, or most where it is more.
func (p Product) Work(most int) int {
	if p.M > most || p.N > most || p.M*p.N > most || p.K > most {
		return most
	}
	return min(most, p.M*p.N*p.K)
}

// mostForLoop is up to how many multiplications a plain loop is faster than the call of a library.
// It is of extents alone, so that a result does not depend on anything else either.
const mostForLoop = 200

// Multiply computes one product, of any extents, on as many threads as pay.
func Multiply[T device.Float](p Product, g Gemmer, a, b, c []T) {
	if p.M == 0 || p.N == 0 {
		return
	}
	if p.K == 0 || p.Work(mostForLoop+1) <= mostForLoop {
		plainGemm(p, a, b, c)
		return
	}
	rows, cols := g.cut(p)
	if rows >= p.M && cols >= p.N {
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
	parallel.For(k.down*k.across, 1, k)
	*k = cutProduct{}
	cutProducts.Put(k)
}

// of is a library's product.
func of[T device.Float](g Gemmer, p Product, a, b, c []T) {
	switch a := any(a).(type) {
	case []float32:
		g.sgemm(p, a, any(b).([]float32), any(c).([]float32))
	case []float64:
		g.dgemm(p, a, any(b).([]float64), any(c).([]float64))
	}
}

// GemmFor is multiply by a library.
func GemmFor[T device.Float](g Gemmer) func(p Product, a, b, c []T) {
	return func(p Product, a, b, c []T) { Multiply(p, g, a, b, c) }
}

// plainGemm goes along the rows of b, or, where b is stored transposed, takes dot products with
// them.
func plainGemm[T device.Float](p Product, a, b, c []T) {
	row, col := p.LDA, 1
	if p.TransA {
		row, col = 1, p.LDA
	}
	for i := range p.M {
		ci := c[i*p.LDC:][:p.N]
		if !p.Add {
			clear(ci)
		}
		if !p.TransB || p.K == 0 {
			for l := range p.K {
				v := a[i*row+l*col]
				for j, w := range b[l*p.LDB:][:p.N] {
					ci[j] += v * w
				}
			}
			continue
		}
		for j := range ci {
			var s T
			for l, w := range b[j*p.LDB:][:p.K] {
				s += a[i*row+l*col] * w
			}
			ci[j] += s
		}
	}
}

// plain is the gemmer of plain loops.
type plain struct{}

func (plain) sgemm(p Product, a, b, c []float32) { plainGemm(p, a, b, c) }
func (plain) dgemm(p Product, a, b, c []float64) { plainGemm(p, a, b, c) }

func (plain) cut(p Product) (rows, cols int) { return p.M, p.N }
