package kernels

import (
	"github.com/weft-project/weft/device"
)

// product is one matrix product c = op(a)·op(b) of contiguous row-major matrices: op(a) is m×k, op(b) is k×n.
type product struct {
	transA, transB bool
	m, n, k        int
}

// gemmer computes matrix products; m, n and k are not 0. What is in c before does not matter.
type gemmer interface {
	sgemm(p product, a, b, c []float32)
	dgemm(p product, a, b, c []float64)
}

// tiny says whether a plain loop beats the call of a library. It depends on the extents only, so that a result
// does not depend on anything else either.
func (p product) tiny() bool {
	const most = 32 * 32 * 32
	return p.m <= most && p.n <= most && p.k <= most && p.m*p.n <= most && p.m*p.n*p.k <= most
}

func matMulBody[T device.Float](i MatMul, in []Type, out Type, g gemmer) body {
	a, b, s := in[0].Shape, in[1].Shape, out.Shape
	r := len(s) - 2
	p := product{transA: i.TransA, transB: i.TransB, m: s[r], n: s[r+1]}
	_, p.k = matrixDims(a, i.TransA)
	batch := s[:r]
	if !i.TransA && b[:len(b)-2].Elems() == 1 { // the rows of all of a's matrices make one tall matrix
		p.m *= batch.Elems()
		batch = nil
	}
	sa, sb := broadcastStrides(a[:len(a)-2], s[:r]), broadcastStrides(b[:len(b)-2], s[:r])
	dims, st := collapse(batch, rowMajor(batch), sa, sb)
	sizeA, sizeB, sizeC := p.m*p.k, p.k*p.n, p.m*p.n
	multiply := gemmOf[T](p, g)
	return func(outs, ins [][]byte) error {
		c, a, b := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		if len(c) == 0 {
			return nil
		}
		if p.k == 0 {
			clear(c)
			return nil
		}
		each(dims, st, func(off []int) {
			at, x, y := off[0]*sizeC, off[1]*sizeA, off[2]*sizeB
			multiply(a[x:x+sizeA], b[y:y+sizeB], c[at:at+sizeC])
		})
		return nil
	}
}

// gemmOf chooses between the plain loop and a library.
func gemmOf[T device.Float](p product, g gemmer) func(a, b, c []T) {
	if p.tiny() {
		return func(a, b, c []T) { plainGemm(p, a, b, c) }
	}
	return func(a, b, c []T) {
		switch a := any(a).(type) {
		case []float32:
			g.sgemm(p, a, any(b).([]float32), any(c).([]float32))
		case []float64:
			g.dgemm(p, a, any(b).([]float64), any(c).([]float64))
		}
	}
}

// plainGemm goes along the rows of b, or, where b is stored transposed, takes dot products with them.
func plainGemm[T device.Float](p product, a, b, c []T) {
	row, col := p.k, 1
	if p.transA {
		row, col = 1, p.m
	}
	clear(c)
	for i := range p.m {
		ci := c[i*p.n : (i+1)*p.n]
		if !p.transB {
			for l := range p.k {
				v, bl := a[i*row+l*col], b[l*p.n:(l+1)*p.n]
				for j, w := range bl {
					ci[j] += v * w
				}
			}
			continue
		}
		for j := range ci {
			var s T
			for l, w := range b[j*p.k : (j+1)*p.k] {
				s += a[i*row+l*col] * w
			}
			ci[j] = s
		}
	}
}

// plain is the gemmer of plain loops.
type plain struct{}

func (plain) sgemm(p product, a, b, c []float32) { plainGemm(p, a, b, c) }
func (plain) dgemm(p product, a, b, c []float64) { plainGemm(p, a, b, c) }
