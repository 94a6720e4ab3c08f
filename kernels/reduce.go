package kernels

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/vec"
)

// reduceWalk goes through x in memory order; the two offsets are x's and that of the result it falls to. The
// result's inner stride is 0 where a run falls to one result, and 1 where it falls to as many.
func reduceWalk(x device.Shape, axes []int) (w walk, results int) {
	mask, _ := reducedAxes(Reduce{}, []Type{{Shape: x}}, axes) // Infer has checked the axes
	kept := reducedShape(x, mask, true)
	w = newWalk(x, rowMajor(x), broadcastStrides(kept, x))
	return w, kept.Elems()
}

func reduceBody[T vec.Float](i Reduce, in Type) body {
	return mapBody[T](Map{Shape: in.Shape, Outs: []Out{{Fold: &i}}}, []Type{in}, nil)
}

// sum adds in float64, in four lanes so that the additions need not wait for each other.
func sum[T device.Float](x []T) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return (a + b) + (c + d)
}

func maxGradBody[T device.Float](i MaxGrad, x Type) body {
	w, results := reduceWalk(x.Shape, i.Axes)
	return func(outs, ins [][]byte) error {
		o, x, y, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]), device.As[T](ins[2])
		ties := make([]T, results)
		w.runs(func(off []int) {
			for k, v := range x[off[0] : off[0]+w.n] {
				if at := off[1] + k*w.inner[1]; isMax(v, y[at]) {
					ties[at]++
				}
			}
		})
		w.runs(func(off []int) {
			for k, v := range x[off[0] : off[0]+w.n] {
				at, g := off[1]+k*w.inner[1], T(0)
				if isMax(v, y[at]) {
					g = gy[at] / ties[at]
				}
				o[off[0]+k] = g
			}
		})
		return nil
	}
}

// isMax says whether v is the maximum y; a NaN is the maximum where there is one.
func isMax[T device.Float](v, y T) bool { return v == y || v != v && y != y }
