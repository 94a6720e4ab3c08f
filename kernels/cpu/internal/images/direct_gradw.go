package images

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weft-project/weft/kernels/cpu/internal/conv"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// directGradW is the gradient of a convolution's kernels: for each channel of the results and each
// tap, the product of the results' gradient with the run of elements that the tap sees. The
// gradient is laid out in rows as long as the planes', zeros beyond their ends, so that the
// positions there add nothing.
type directGradW[T conv.Float] struct {
	*direct[T]
	off, to []int // per tap, in the order of where they look, in pairs: where, and its place among the weights; the last may be there twice
	runs    sync.Pool
	scratch sync.Pool
}

// gradWRun is one run. What it needs is kept for the next.
type gradWRun[T conv.Float] struct {
	packing packing[T]
	d       *directGradW[T]
	w, gy   []T
	rows    []T   // of the gradient, laid out
	steps   []int // where the planes of a round have a vector of positions
}

// tapScratch is a vector for each of four channels and each tap, and its sum.
type tapScratch[T conv.Float] struct{ c, sums []T }

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
	run, rows := d.bandSpan(k.Lanes), (o+conv.Rows-1)/conv.Rows*conv.Rows
	d.group = max(1, min(d.n*d.bands(), roundElems/max(d.in.size, run*rows)))
	d.runs.New = func() any {
		return &gradWRun[T]{
			packing: packing[T]{d: d.direct, planes: make([]T, d.group*d.in.size)}, d: d,
			rows: make([]T, rows*d.group*run), steps: make([]int, 0, d.group*run/k.Lanes),
		}
	}
	d.scratch.New = func() any {
		return &tapScratch[T]{make([]T, conv.Rows*d.pitch()*k.Lanes), make([]T, d.pitch())}
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
	r := d.runs.Get().(*gradWRun[T])
	r.packing.x, r.w, r.gy = x, w, gy
	lanes, run := d.k.Lanes, d.bandSpan(d.k.Lanes)
	grain := max(1, pieceSums/(conv.Rows*d.group*run*len(d.off)))
	for from := 0; from < d.n*d.bands(); from += d.group {
		r.packing.pack(from, min(from+d.group, d.n*d.bands()))
		r.steps = r.steps[:0]
		for b := range min(d.group, d.n*d.bands()-from) {
			for j := 0; j < run; j += lanes {
				r.steps = append(r.steps, b*d.in.size+j)
			}
		}
		parallel.For(d.fours(), grain, r)
	}
	r.packing.x, r.w, r.gy = nil, nil, nil
	d.runs.Put(r)
}

// Piece adds the round's part of the gradient for some channels, four at a time.
func (r *gradWRun[T]) Piece(from, to int) {
	d := r.d
	s := d.scratch.Get().(*tapScratch[T])
	lanes, run := d.k.Lanes, d.bandSpan(d.k.Lanes)
	for o := from * conv.Rows; o < min(to*conv.Rows, d.chans); o += conv.Rows {
		for k := o; k < min(o+conv.Rows, d.chans); k++ {
			for b := range len(r.steps) * lanes / run {
				d.lay(r.rows[(k*d.group+b)*run:][:run], r.gy, k, r.packing.first+b)
			}
		}
		d.four(s, r, o)
		for k := o; k < min(o+conv.Rows, d.chans); k++ {
			d.k.Sums(s.sums, s.c[(k-o)*d.pitch()*lanes:])
			for t, at := range d.to {
				r.w[k*d.next+at] += s.sums[t]
			}
		}
	}
	d.scratch.Put(s)
}

// lay lays one channel of a band's gradient out in rows of the planes' length. What lies between
// the rows is 0 from the start.
func (d *directGradW[T]) lay(to, gy []T, o, b int) {
	bands := d.bands()
	first := b % bands * d.lines
	from := gy[((b/bands*d.chans+o)*d.rows+first)*d.cols:]
	rows := min(d.lines, d.rows-first)
	d.k.Copy(to, d.in.cols, from, d.cols, rows, d.cols)
	clear(to[min(rows*d.in.cols, len(to)):])
}

// four multiplies four channels from o on with every tap.
func (d *directGradW[T]) four(s *tapScratch[T], run *gradWRun[T], o int) {
	lanes := d.k.Lanes
	lda := d.group * d.bandSpan(lanes)
	for k := 0; k < len(run.steps); k += stepsAtOnce {
		steps := run.steps[k:min(k+stepsAtOnce, len(run.steps))]
		for t := 0; t < len(d.off); t += 2 {
			at := d.off[t]
			d.k.Tile(run.rows[o*lda+k*lanes:], lda, lanes, run.packing.planes[at:], d.off[t+1]-at, steps, s.c[t*lanes:], d.pitch()*lanes, lanes, k > 0)
		}
	}
}
