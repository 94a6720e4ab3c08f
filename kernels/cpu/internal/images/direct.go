package images

import (
	"slices"
	"sync"

	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/conv"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// A convolution without columns: images are copied into padded planes whose rows lie one after the
// other, so that what a tap sees from all positions is one run of elements, and tiles of package
// conv add the taps up. A stride s parts an image into s×s planes, of every s-th row and column.
// The run also has positions beyond the end of each row, whose results are not used.

// padded is images as planes. Row r and column q of a plane of phase p is row r·step+p−before of
// the image, or 0 outside of it.
type padded struct {
	c, h, w      int // of the image
	step, before [2]int
	phases       [][2]int
	rows, cols   int // of a plane
	size         int // elements of all planes of an image
}

// lay sets the extents of planes, with room to read a tile beyond the last.
func (p *padded) lay(rows, cols, slack int) {
	p.rows, p.cols = rows, cols
	p.size = p.c*len(p.phases)*rows*cols + slack
}

// within is the planes' rows or columns from ≤ r < to, of those from first on, that lie in the
// image.
func (p *padded) within(axis, phase, first, size int) (from, to int) {
	n, d, b := [2]int{p.h, p.w}[axis], p.step[axis], p.before[axis]-phase
	from = max(0, (b+d-1)/d-first)
	if b < 0 {
		from = max(0, -(-b/d)-first)
	}
	last := n - 1 + b // ≥ 0 where some row is inside
	if last < 0 {
		return 0, 0
	}
	return min(from, size), max(min(last/d+1-first, size), min(from, size))
}

// pack copies the planes' rows from first on. Columns outside of the image are 0 from the start and
// stay so.
func pack[T conv.Float](p *padded, cp func(to []T, ldt int, from []T, ldf, rows, n int), to, x []T, first int) {
	for c := range p.c {
		for k, phase := range p.phases {
			r0, r1 := p.within(0, phase[0], first, p.rows)
			q0, q1 := p.within(1, phase[1], 0, p.cols)
			plane := to[(c*len(p.phases)+k)*p.rows*p.cols:][:p.rows*p.cols]
			if p.step == [2]int{1, 1} && q0 < q1 {
				clear(plane[:r0*p.cols])
				clear(plane[r1*p.cols:])
				if r0 < r1 {
					cp(plane[r0*p.cols+q0:], p.cols, x[(c*p.h+first+r0-p.before[0])*p.w+q0-p.before[1]:], p.w, r1-r0, q1-q0)
				}
				continue
			}
			for r := range p.rows {
				row := plane[r*p.cols+q0 : r*p.cols+q1]
				if r < r0 || r >= r1 {
					clear(row)
					continue
				}
				from := x[(c*p.h+(r+first)*p.step[0]+phase[0]-p.before[0])*p.w:][:p.w]
				for q := range row {
					row[q] = from[(q0+q)*p.step[1]+phase[1]-p.before[1]]
				}
			}
		}
	}
}

// tapSum is what is added up for one phase of the results: per tap where it looks, and where its
// weight for the first channel stands.
type tapSum struct {
	off, w []int
	first  [2]int // row r and column q of positions are rows first+r·step and columns first+q·step of the result
}

// direct is images summed over taps into images.
type direct[T conv.Float] struct {
	k           *conv.Kernel[T]
	in          padded
	sums        []tapSum
	rows, cols  int // of positions
	lines       int // rows of positions of a band, which is worked on at once
	n           int // images
	chans, next int // channels of the results, and from the weights of one to those of the next
	h, w        int // of the results
	step        [2]int
	group       int // bands per round
	idle, work  sync.Pool
}

// directRun is one run: rounds of packing, then summing. What the rounds need is kept for the next
// run.
type directRun[T conv.Float] struct {
	packing packing[T]
	summing summing[T]
}

// packing packs the planes of some bands, from the first on.
type packing[T conv.Float] struct {
	d         *direct[T]
	planes, x []T
	first     int
}

// summing sums those bands, first ≤ b < last, four channels of one phase at a time.
type summing[T conv.Float] struct {
	d            *direct[T]
	planes, y, w []T
	first, last  int
}

// fourScratch is the memory for four channels of a round.
type fourScratch[T conv.Float] struct{ weights, a, c []T }

// stepsAtOnce is how many steps of a sum go on before another tile takes over: their weights stay
// in the nearest cache.
const stepsAtOnce = 96

// roundElems bounds the planes, and the sums, of a round.
const roundElems = 1 << 16

// pieceSums is how many products a piece of work has at least: some tens of microseconds.
const pieceSums = 1 << 20

// chooseTiles chooses the extents of bands and rounds, and lays the planes out for taps that reach
// so many rows and columns further.
func (d *direct[T]) chooseTiles(reach [2]int) {
	slack := 2 * d.k.Lanes
	per := max(1, d.in.c*len(d.in.phases)*(d.cols+reach[1]))
	d.lines = min(d.rows, max(1, roundElems/per-reach[0]))
	d.in.lay(d.lines+reach[0], d.cols+reach[1], slack)
	d.group = max(1, min(d.n*d.bands(), roundElems/max(d.in.size, conv.Rows*d.bandSpan(slack))))
	d.idle.New = func() any {
		planes := make([]T, d.group*d.in.size)
		return &directRun[T]{packing[T]{d: d, planes: planes}, summing[T]{d: d, planes: planes}}
	}
	d.work.New = func() any {
		steps := min(stepsAtOnce, d.taps())
		return &fourScratch[T]{make([]T, steps+3), make([]T, conv.Rows*steps*d.k.Lanes), make([]T, conv.Rows*d.group*d.bandSpan(slack))}
	}
}

func (d *direct[T]) bands() int { return (d.rows + d.lines - 1) / d.lines }

// bandSpan is how many elements the positions of a band span, in whole units.
func (d *direct[T]) bandSpan(unit int) int {
	n := (d.lines-1)*d.in.cols + d.cols
	return (n + unit - 1) / unit * unit
}

func (d *direct[T]) taps() (n int) {
	for _, s := range d.sums {
		n = max(n, len(s.off))
	}
	return n
}

func (p *packing[T]) Piece(from, to int) {
	d, bands := p.d, p.d.bands()
	size := d.in.c * d.in.h * d.in.w
	for b := from; b < to; b++ {
		n := (p.first + b) / bands
		pack(&d.in, d.k.Copy, p.planes[b*d.in.size:], p.x[n*size:(n+1)*size], (p.first+b)%bands*d.lines)
	}
}

// pack packs the planes of the bands from ≤ b < to.
func (p *packing[T]) pack(from, to int) {
	p.first = from
	parallel.For(to-from, max(1, roundElems/p.d.in.size), p)
}

// fours is how often four channels cover all.
func (d *direct[T]) fours() int { return (d.chans + conv.Rows - 1) / conv.Rows }

// compute sums images x with weights w into y.
func (d *direct[T]) compute(y, x, w []T) {
	if len(y) == 0 {
		return
	}
	r := d.idle.Get().(*directRun[T])
	r.packing.x, r.summing.y, r.summing.w = x, y, w
	grain := max(1, pieceSums/max(1, conv.Rows*d.group*d.bandSpan(1)*d.taps()))
	for from := 0; from < d.n*d.bands(); from += d.group {
		to := min(from+d.group, d.n*d.bands())
		r.packing.pack(from, to)
		r.summing.first, r.summing.last = from, to
		parallel.For(len(d.sums)*d.fours(), grain, &r.summing)
	}
	r.packing.x, r.summing.y, r.summing.w = nil, nil, nil
	d.idle.Put(r)
}

func (r *summing[T]) Piece(from, to int) {
	d := r.d
	s := d.work.Get().(*fourScratch[T])
	for u := from; u < to; u++ {
		sum, o := &d.sums[u/d.fours()], u%d.fours()*conv.Rows
		d.four(s, r.planes, sum, r.w, o, r.last-r.first)
		for k := range min(conv.Rows, d.chans-o) {
			for b := r.first; b < r.last; b++ {
				d.storeBand(r.y, s.c[(k*d.group+b-r.first)*d.bandSpan(2*d.k.Lanes):], sum, o+k, b)
			}
		}
	}
	d.work.Put(s)
}

// four sums four channels from o on, for n bands.
func (d *direct[T]) four(s *fourScratch[T], planes []T, sum *tapSum, w []T, o, n int) {
	lanes := d.k.Lanes
	run, rows := d.bandSpan(2*lanes), min(conv.Rows, d.chans-o)
	lda := (len(s.weights) - 3) * lanes
	for k := 0; k == 0 || k < len(sum.off); k += stepsAtOnce {
		off := sum.off[k:min(k+stepsAtOnce, len(sum.off))]
		for r := range rows {
			for j, at := range sum.w[k : k+len(off)] {
				s.weights[j] = w[(o+r)*d.next+at]
			}
			d.k.Splat(s.a[r*lda:][:len(off)*lanes], s.weights)
		}
		for b := range n {
			for j := 0; j < run; j += 2 * lanes {
				d.k.Tile(s.a, lda, lanes, planes[b*d.in.size+j:], lanes, off, s.c[b*run+j:], d.group*run, lanes, k > 0)
			}
		}
	}
}

// storeBand copies one channel of a band's results to where they belong.
func (d *direct[T]) storeBand(y, c []T, sum *tapSum, o, b int) {
	bands := d.bands()
	first, image := b%bands*d.lines, y[(b/bands*d.chans+o)*d.h*d.w:][:d.h*d.w]
	q0, q1 := reached(sum.first[1], d.step[1], d.w, d.cols)
	if d.step == [2]int{1, 1} {
		r0, r1 := reached(sum.first[0]+first, 1, d.h, min(d.lines, d.rows-first))
		if r0 < r1 && q0 < q1 {
			d.k.Copy(image[(sum.first[0]+first+r0)*d.w+sum.first[1]+q0:], d.w, c[r0*d.in.cols+q0:], d.in.cols, r1-r0, q1-q0)
		}
		return
	}
	for r := range min(d.lines, d.rows-first) {
		at := sum.first[0] + (first+r)*d.step[0]
		if at < 0 || at >= d.h {
			continue
		}
		row, from := image[at*d.w:][:d.w], c[r*d.in.cols:]
		for q := q0; q < q1; q++ {
			row[sum.first[1]+q*d.step[1]] = from[q]
		}
	}
}

// reached is the positions from ≤ q < to, of n, for which 0 ≤ first + q·step < size.
func reached(first, step, size, n int) (from, to int) {
	if first < 0 {
		from = (-first + step - 1) / step
	}
	if first < size {
		to = (size-1-first)/step + 1
	}
	return min(from, n), max(min(to, n), min(from, n))
}

// tapsOf calls fn for every element of the kernel, with its phase and how many rows and columns of
// that phase's plane it looks ahead.
func tapsOf(w kernels.Window, fn func(ky, kx int, phase, ahead [2]int)) {
	for ky := range w.Kernel[0] {
		for kx := range w.Kernel[1] {
			y, x := ky*w.Dilation[0], kx*w.Dilation[1]
			fn(ky, kx, [2]int{y % w.Stride[0], x % w.Stride[1]}, [2]int{y / w.Stride[0], x / w.Stride[1]})
		}
	}
}

// reachOf is how many rows and columns taps look ahead, and the phases they look at.
func reachOf(w kernels.Window) (reach [2]int, phases [][2]int) {
	tapsOf(w, func(_, _ int, phase, ahead [2]int) {
		reach = [2]int{max(reach[0], ahead[0]), max(reach[1], ahead[1])}
		if !slices.Contains(phases, phase) {
			phases = append(phases, phase)
		}
	})
	return reach, phases
}

// newDirect is the convolution of images x with o kernels.
func newDirect[T conv.Float](k *conv.Kernel[T], s sliding, o int) *direct[T] {
	reach, phases := reachOf(s.Window)
	d := &direct[T]{k: k, rows: s.oh, cols: s.ow, n: s.n, chans: o, next: s.taps, h: s.oh, w: s.ow, step: [2]int{1, 1}}
	d.in = padded{c: s.c, h: s.h, w: s.w, step: s.Stride, before: s.Before, phases: phases}
	d.sums = make([]tapSum, 1)
	d.chooseTiles(reach)
	sum := &d.sums[0]
	for c := range s.c {
		tapsOf(s.Window, func(ky, kx int, phase, ahead [2]int) {
			plane := c*len(phases) + slices.Index(phases, phase)
			sum.off = append(sum.off, (plane*d.in.rows+ahead[0])*d.in.cols+ahead[1])
			sum.w = append(sum.w, len(sum.w))
		})
	}
	return d
}

// directGradX is direct with the operands the other way round: weights, then images.
type directGradX[T conv.Float] struct{ *direct[T] }

func (d directGradX[T]) compute(gx, w, gy []T) { d.direct.compute(gx, gy, w) }

// newDirectGradX is the gradient of its images: each of their phases is a sum over the result's
// gradient.
func newDirectGradX[T conv.Float](k *conv.Kernel[T], s sliding, o int) *direct[T] {
	reach, _ := reachOf(s.Window)
	area := s.Kernel[0] * s.Kernel[1]
	var first, count [2]int // positions: rows and columns of the planes that the images have in each phase
	for a, n := range [2]int{s.h, s.w} {
		first[a] = s.Before[a] / s.Stride[a]
		count[a] = (n-1+s.Before[a])/s.Stride[a] - first[a] + 1
	}
	d := &direct[T]{k: k, rows: count[0], cols: count[1], n: s.n, chans: s.c, next: area, h: s.h, w: s.w, step: s.Stride}
	d.in = padded{c: o, h: s.oh, w: s.ow, step: [2]int{1, 1}, before: [2]int{reach[0] - first[0], reach[1] - first[1]}, phases: make([][2]int, 1)}
	d.chooseTiles(reach)
	for py := range s.Stride[0] {
		for px := range s.Stride[1] {
			sum := tapSum{first: [2]int{first[0]*s.Stride[0] + py - s.Before[0], first[1]*s.Stride[1] + px - s.Before[1]}}
			for out := range o {
				tapsOf(s.Window, func(ky, kx int, phase, ahead [2]int) {
					if phase == [2]int{py, px} {
						sum.off = append(sum.off, (out*d.in.rows+reach[0]-ahead[0])*d.in.cols+reach[1]-ahead[1])
						sum.w = append(sum.w, out*s.taps+ky*s.Kernel[1]+kx)
					}
				})
			}
			d.sums = append(d.sums, sum)
		}
	}
	return d
}
