package kernels

import (
	"github.com/weft-project/weft/device"
)

func matMulBody[T device.Float](i MatMul, in []Type, out Type, g gemmer) body {
	a, b, s := in[0].Shape, in[1].Shape, out.Shape
	r := len(s) - 2
	m, n := s[r], s[r+1]
	_, k := matrixDims(a, i.TransA)
	batch := s[:r]
	if !i.TransA && b[:len(b)-2].Elems() == 1 { // the rows of all of a's matrices make one tall matrix
		m *= batch.Elems()
		batch = nil
	}
	sa, sb := broadcastStrides(a[:len(a)-2], s[:r]), broadcastStrides(b[:len(b)-2], s[:r])
	dims, st := collapse(batch, rowMajor(batch), sa, sb)
	sizeA, sizeB, sizeC := m*k, k*n, m*n
	p := contiguous(i.TransA, i.TransB, m, n, k)
	multiply := gemmOf[T](p, g)
	return func(outs, ins [][]byte) error {
		c, a, b := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		if len(c) == 0 {
			return nil
		}
		if k == 0 {
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
