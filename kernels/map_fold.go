package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/vec"
)

// fold is a reduced result of a map: sums or maxima, held in float64 until the end.
type fold struct {
	out, reg int // which result, of which register
	fn       ReduceFn
	div      float64
	kept     device.Shape // of the result, with the reduced axes
	at, n    int          // its sums among those of a part
	strides  []int        // of the sums, over the map's axes; 0 along what is reduced
	in       inTile
}

// newFold gives a fold over a shape that Infer has accepted, and the strides of its result over the shape.
func newFold(i Reduce, s device.Shape) (fold, []int) {
	mask, _ := reducedAxes(i, []Type{{Shape: s}}, i.Axes)
	kept := reducedShape(s, mask, true)
	f := fold{fn: i.Fn, div: 1, kept: kept, n: kept.Elems()}
	if i.Fn == Mean && f.n > 0 {
		f.div = float64(s.Elems() / f.n)
	}
	return f, broadcastStrides(kept, s)
}

// begin makes sums ready to be added to.
func (f *fold) begin(acc []float64) {
	v := 0.0
	if f.fn == Max {
		v = math.Inf(-1)
	}
	for k := range acc[f.at : f.at+f.n] {
		acc[f.at+k] = v
	}
}

// foldRows adds a tile x to sums: n indices step apart, each all of dims.
func foldRows[T vec.Float](l *vec.Loops[T], fn ReduceFn, acc []float64, x []T, n, step int, dims, strides []int) {
	if len(dims) == 0 {
		foldRow(l, fn, acc, x[:n], step)
		return
	}
	size := len(x) / n
	for k := range n {
		foldRows(l, fn, acc[k*step:], x[k*size:(k+1)*size], dims[0], strides[0], dims[1:], strides[1:])
	}
}

func foldRow[T vec.Float](l *vec.Loops[T], fn ReduceFn, acc []float64, x []T, step int) {
	switch {
	case fn == Max && step == 0:
		if v := float64(l.Max(x)); v > acc[0] || v != v {
			acc[0] = v
		}
	case fn == Max:
		for k, v := range x {
			if v := float64(v); v > acc[k*step] || v != v {
				acc[k*step] = v
			}
		}
	case step == 0:
		acc[0] += l.Sum(x)
	case step == 1:
		l.Accumulate(acc[:len(x)], x)
	default:
		for k, v := range x {
			acc[k*step] += float64(v)
		}
	}
}

// finish writes the result from the sums of all parts, added in order.
func finish[T vec.Float](f *fold, o []T, acc []float64, size int) {
	for k := range o {
		s := acc[f.at+k]
		for p := f.at + k + size; p < len(acc); p += size {
			if v := acc[p]; f.fn != Max {
				s += v
			} else if v > s || v != v {
				s = v
			}
		}
		o[k] = T(s / f.div)
	}
}
