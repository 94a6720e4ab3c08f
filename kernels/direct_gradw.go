package kernels

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weft-project/weft/kernels/conv"
)

// directGradW is the gradient of a convolution's kernels: for each channel of the results and each tap, the product of the results' gradient
// with the run of elements that the tap sees. The gradient is laid out in rows as long as the planes', zeros beyond their ends, so that the
// positions there add nothing.
type directGradW[T conv.Float] struct {
	*direct[T]
	off, to []int // per tap, in the order of where they look, in pairs: where, and its place among the weights; the last may be there twice
	idle    sync.Pool
}

type gradWScratch[T conv.Float] struct {
	planes, gy []T
	c, sums    []T   // a vector for each of four channels and each tap; and its sum
	steps      []int // where the planes of a round have a vector of positions
}

func newDirectGradW[T conv.Float](k *conv.Kernel[T], s sliding, o int) *directGradW[T] {
	d := &directGradW[T]{direct: newDirect(k, s, o)}
	sum := d.sums[0]
	d.to = slices.Clone(sum.w)
	slices.SortFunc(d.to, func(a, b int) int { return cmp.Compare(sum.off[a], sum.off[b]) })
	for _, t := range d.to {
		d.off = append(d.off, sum.off[t])
	}
	if n := len(d.off); n%2 == 1 {
		d.off = append(d.off, d.off[n-1])
	}
	run, rows := d.run(k.Lanes), (o+conv.Rows-1)/conv.Rows*conv.Rows
	d.group = max(1, min(d.n*d.bands(), roundElems/max(d.in.size, run*rows)))
	d.idle.New = func() any {
		return &gradWScratch[T]{
			make([]T, d.group*d.in.size), make([]T, rows*d.group*run), make([]T, conv.Rows*d.pitch()*k.Lanes), make([]T, d.pitch()),
			make([]int, 0, d.group*run/k.Lanes),
		}
	}
	return d
}

// pitch is how many vectors one channel's products with all taps take.
func (d *directGradW[T]) pitch() int { return (len(d.off) + 3) &^ 3 }

// compute gives the gradient w of images x and the results' gradient gy.
func (d *directGradW[T]) compute(w, x, gy []T) {
	clear(w)
	if len(w) == 0 || d.n == 0 {
		return
	}
	s := d.idle.Get().(*gradWScratch[T])
	lanes, run := d.k.Lanes, d.run(d.k.Lanes)
	d.rounds(x, s.planes, func(from, to int) {
		s.steps = s.steps[:0]
		for b := range to - from {
			for j := 0; j < run; j += lanes {
				s.steps = append(s.steps, b*d.in.size+j)
			}
		}
		for o := range d.chans {
			for b := from; b < to; b++ {
				d.spread(s.gy[(o*d.group+b-from)*run:][:run], gy, o, b)
			}
		}
		for o := 0; o < d.chans; o += conv.Rows {
			d.four(s, o)
			for r := range min(conv.Rows, d.chans-o) {
				d.k.Sums(s.sums, s.c[r*d.pitch()*lanes:])
				for k, t := range d.to {
					w[(o+r)*d.next+t] += s.sums[k]
				}
			}
		}
	})
	d.idle.Put(s)
}

// spread lays one channel of a band's gradient out in rows of the planes' length. What lies between the rows is 0 from the start.
func (d *directGradW[T]) spread(to, gy []T, o, b int) {
	bands := d.bands()
	first := b % bands * d.lines
	from := gy[((b/bands*d.chans+o)*d.rows+first)*d.cols:]
	rows := min(d.lines, d.rows-first)
	d.k.Copy(to, d.in.cols, from, d.cols, rows, d.cols)
	clear(to[min(rows*d.in.cols, len(to)):])
}

// four multiplies four channels from o on with every tap.
func (d *directGradW[T]) four(s *gradWScratch[T], o int) {
	lanes := d.k.Lanes
	lda := d.group * d.run(lanes)
	for k := 0; k < len(s.steps); k += stepsAtOnce {
		steps := s.steps[k:min(k+stepsAtOnce, len(s.steps))]
		for t := 0; t < len(d.off); t += 2 {
			at := d.off[t]
			d.k.Tile(s.gy[o*lda+k*lanes:], lda, lanes, s.planes[at:], d.off[t+1]-at, steps, s.c[t*lanes:], d.pitch()*lanes, lanes, k > 0)
		}
	}
}
