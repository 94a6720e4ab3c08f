package elementwise

import (
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// fold is a reduced result of a map: sums or maxima, held in float64 until the end.
type fold struct {
	out, reg int // which result, of which register
	fn       kernels.ReduceFn
	div      float64
	kept     device.Shape // of the result, with the reduced axes
	n        int          // how many sums
	at       int          // where they are among those of a part
	copies   int          // how many of each there are there
	each     int          // how many there are per unit, where no two units have one in common; else 0
	strides  []int        // of the sums, over the map's axes; 0 along what is reduced
	in       inTile
}

// newFold gives a fold over a shape that Infer has accepted, and the strides of its result over the
// shape.
func newFold(i kernels.Reduce, s device.Shape) (fold, []int) {
	out, _ := kernels.Reduce{Axes: i.Axes, Keep: true}.Infer([]kernels.Type{{Dtype: device.Float64, Shape: s}})
	kept := out[0].Shape
	f := fold{fn: i.Fn, div: 1, kept: kept, n: kept.Elems()}
	if i.Fn == kernels.Mean && f.n > 0 {
		f.div = float64(s.Elems() / f.n)
	}
	return f, stride.Broadcast(kept, s)
}

// widen gives sums of short rows copies, so that many rows are added at once.
func (f *fold) widen() {
	const width = 256
	if f.fn != kernels.Max && f.in.step == 0 && len(f.in.dims) == 1 && f.in.strides[0] == 1 && f.n == f.in.dims[0] && f.n <= width/4 {
		f.copies = width / f.n
	}
}

// place chooses where the sums lie: in the scratch of a tile, where no two tiles have a sum in
// common, or else among those of a part.
func (f *fold) place(t *tiling, sums int) int {
	f.at, f.copies = sums, 1
	if !slices.Contains(f.strides[:t.axis+1], 0) {
		f.each = f.n / max(t.units, 1)
		return sums
	}
	f.widen()
	return sums + f.n*f.copies
}

// clear makes sums ready to be added to.
func (f *fold) clear(acc []float64) {
	if f.fn != kernels.Max {
		clear(acc)
		return
	}
	for k := range acc {
		acc[k] = math.Inf(-1)
	}
}

// add adds a tile of m units, whose first falls to acc[0].
func add[T vec.Float](l *vec.Loops[T], f *fold, acc []float64, x []T, m int) {
	if f.copies == 1 {
		foldRows(l, f.fn, acc, x, m*f.in.mul, f.in.step, f.in.dims, f.in.strides)
		return
	}
	wide := f.n * f.copies
	rows := len(x) / wide
	l.AccumulateRows(acc[:wide], x, rows)
	x = x[rows*wide:]
	l.Accumulate(acc[:len(x)], x)
}

// foldRows adds a tile x to sums: n indices step apart, each all of dims.
func foldRows[T vec.Float](l *vec.Loops[T], fn kernels.ReduceFn, acc []float64, x []T, n, step int, dims, strides []int) {
	if len(dims) == 0 {
		foldRow(l, fn, acc, x[:n], step)
		return
	}
	size := len(x) / n
	if step == 0 && len(dims) == 1 && strides[0] == 1 && fn != kernels.Max {
		l.AccumulateRows(acc[:size], x, n)
		return
	}
	for k := range n {
		foldRows(l, fn, acc[k*step:], x[k*size:(k+1)*size], dims[0], strides[0], dims[1:], strides[1:])
	}
}

func foldRow[T vec.Float](l *vec.Loops[T], fn kernels.ReduceFn, acc []float64, x []T, step int) {
	switch {
	case fn == kernels.Max && step == 0:
		if v := float64(l.Max(x)); v > acc[0] || v != v {
			acc[0] = v
		}
	case fn == kernels.Max:
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

// finish writes the result from the sums of all parts, which are size apart, brought together one
// part after the other.
func finish[T vec.Float](f *fold, o []T, acc []float64, size int) {
	l, all := vec.Best[float64](), acc[f.at:f.at+f.n]
	for part := f.at; part < len(acc); part += size {
		for c := range f.copies {
			if part+c > f.at {
				foldRow(l, f.fn, all, acc[part+c*f.n:][:f.n], 1)
			}
		}
	}
	write(f, o, all)
}

func write[T vec.Float](f *fold, o []T, sums []float64) {
	for k, v := range sums {
		o[k] = T(v / f.div)
	}
}
