package images

import (
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/conv"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// sliding is a window over images: c×h×w elements in, oh×ow positions.
type sliding struct {
	kernels.Window
	n, c, h, w int
	oh, ow     int
	taps       int // c·kh·kw
}

func newSliding(w kernels.Window, x device.Shape) sliding {
	w = w.Whole()
	out, _ := w.Over(x[2], x[3]) // Infer has checked
	return sliding{w, x[0], x[1], x[2], x[3], out[0], out[1], x[1] * w.Kernel[0] * w.Kernel[1]}
}

// tap is what one element of the kernel sees.
type tap struct{ c, dy, dx int }

func (s *sliding) tap(k int) tap {
	area := s.Kernel[0] * s.Kernel[1]
	in := k % area
	return tap{k / area, in/s.Kernel[1]*s.Dilation[0] - s.Before[0], in%s.Kernel[1]*s.Dilation[1] - s.Before[1]}
}

// span is the positions along a row, from ≤ ox < to, whose column for tap t lies in the image.
func (s *sliding) span(t tap) (from, to int) {
	d := s.Stride[1]
	if t.dx < 0 {
		from = (-t.dx + d - 1) / d
	}
	to = 0
	if last := s.w - 1 - t.dx; last >= 0 {
		to = last/d + 1
	}
	return min(from, s.ow), max(min(to, s.ow), min(from, s.ow))
}

// row is where in an image the row lies that tap t sees from positions (oy, …), −1 for padding.
func (s *sliding) row(t tap, oy int) int {
	y := oy*s.Stride[0] + t.dy
	if y < 0 || y >= s.h {
		return -1
	}
	return (t.c*s.h + y) * s.w
}

// patch is some positions: rows from ≤ oy < to, columns left ≤ ox < right.
type patch struct{ from, to, left, right int }

// all is every position.
func (s *sliding) all() patch { return patch{0, s.oh, 0, s.ow} }

func (p patch) size() int { return (p.to - p.from) * (p.right - p.left) }

// im2col writes the columns of a patch of image x: taps × positions.
func im2col[T conv.Float](s *sliding, x, cols []T, p patch) {
	w := p.right - p.left
	for k := range s.taps {
		t := s.tap(k)
		lo, hi := s.span(t)
		lo = min(max(lo, p.left), p.right)
		hi = min(max(hi, lo), p.right)
		for oy := p.from; oy < p.to; oy++ {
			o := cols[(k*(p.to-p.from)+oy-p.from)*w:][:w]
			row := s.row(t, oy)
			if row < 0 || lo >= hi {
				clear(o)
				continue
			}
			clear(o[:lo-p.left])
			clear(o[hi-p.left:])
			if d := s.Stride[1]; d > 1 {
				for ox := lo; ox < hi; ox++ {
					o[ox-p.left] = x[row+ox*d+t.dx]
				}
				continue
			}
			copy(o[lo-p.left:hi-p.left], x[row+lo+t.dx:])
		}
	}
}

// col2im adds the columns of a patch to image x.
func col2im[T conv.Float](s *sliding, cols, x []T, p patch) {
	w := p.right - p.left
	for k := range s.taps {
		t := s.tap(k)
		lo, hi := s.span(t)
		lo, hi = max(lo, p.left), min(hi, p.right)
		for oy := p.from; oy < p.to; oy++ {
			o, row, d := cols[(k*(p.to-p.from)+oy-p.from)*w:][:w], s.row(t, oy), s.Stride[1]
			if row < 0 {
				continue
			}
			for ox := lo; ox < hi; ox++ {
				x[row+ox*d+t.dx] += o[ox-p.left]
			}
		}
	}
}

// im2colBody lays out what a window sees.
func im2colBody[T conv.Float](i kernels.Im2col, in kernels.Type) parallel.Body {
	s := newSliding(i.Window, in.Shape)
	size, area := s.c*s.h*s.w, s.taps*s.oh*s.ow
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		if len(o) == 0 {
			return nil
		}
		for n := range s.n {
			x, o := x[n*size:(n+1)*size], o[n*area:(n+1)*area]
			if i.Rows {
				s.rows(func(k, at, from int) {
					o[at] = 0
					if from >= 0 {
						o[at] = x[from]
					}
				})
				continue
			}
			im2col(&s, x, o, s.all())
		}
		return nil
	}
}

// col2imBody adds up what Im2col laid out, where it came from.
func col2imBody[T conv.Float](i kernels.Col2im, out kernels.Type) parallel.Body {
	s := newSliding(i.Window, out.Shape)
	size, area := s.c*s.h*s.w, s.taps*s.oh*s.ow
	return func(outs, ins [][]byte) error {
		x, cols := device.As[T](outs[0]), device.As[T](ins[0])
		clear(x)
		for n := range s.n {
			x, cols := x[n*size:(n+1)*size], cols[n*area:(n+1)*area]
			if i.Rows {
				s.rows(func(_, at, to int) {
					if to >= 0 {
						x[to] += cols[at]
					}
				})
				continue
			}
			col2im(&s, cols, x, s.all())
		}
		return nil
	}
}

// rows calls fn for every element of an image's columns, laid out in rows: its tap, its place, and
// that of what it sees in the image, −1 for padding.
func (s *sliding) rows(fn func(k, at, in int)) {
	for k := range s.taps {
		t := s.tap(k)
		lo, hi := s.span(t)
		for oy := range s.oh {
			row := s.row(t, oy)
			for ox := range s.ow {
				from := -1
				if row >= 0 && ox >= lo && ox < hi {
					from = row + ox*s.Stride[1] + t.dx
				}
				fn(k, (oy*s.ow+ox)*s.taps+k, from)
			}
		}
	}
}

// blockElems bounds the columns that are there at once: they stay in the cache.
const blockElems = 1 << 16

// convolution is products with blocks of columns.
type convolution[T conv.Float] struct {
	sliding
	o     int  // channels out
	lines int  // rows of positions per block
	wide  int  // columns of positions per block; less than all only where lines is 1
	point bool // the kernel sees one element, at every place: images are their own columns
	g     blas.Gemmer
	idle  sync.Pool // of *[]T, the columns of a block
}

func newConvolution[T conv.Float](w kernels.Window, x device.Shape, o int, g blas.Gemmer) *convolution[T] {
	c := &convolution[T]{sliding: newSliding(w, x), o: o, g: g}
	c.point = c.Kernel == [2]int{1, 1} && c.Stride == c.Kernel && c.oh == c.h && c.ow == c.w && c.Before == [2]int{}
	if c.point {
		c.lines, c.wide = c.oh, c.ow
		return c
	}
	c.lines = min(c.oh, max(1, blockElems/max(1, c.taps*c.ow)))
	if c.wide = c.ow; c.lines == 1 {
		c.wide = min(c.ow, max(16, blockElems/max(1, c.taps)))
	}
	c.idle.New = func() any {
		cols := make([]T, c.taps*c.lines*c.wide)
		return &cols
	}
	return c
}

// colBlock is a patch of an image, its columns, and where its results begin.
type colBlock[T conv.Float] struct {
	patch
	x, cols []T
	y       int
}

// blocks calls fn with each block of each image of x; its columns hold anything. Without channels
// out there is nothing to add up.
func (c *convolution[T]) blocks(x []T, fn func(b colBlock[T])) {
	if c.n == 0 || c.o == 0 {
		return
	}
	var cols []T
	if !c.point {
		held := c.idle.Get().(*[]T)
		defer c.idle.Put(held)
		cols = *held
	}
	size, area := c.c*c.h*c.w, c.oh*c.ow
	for n := range c.n {
		for from := 0; from < c.oh; from += c.lines {
			for left := 0; left < c.ow; left += c.wide {
				p := patch{from, min(from+c.lines, c.oh), left, min(left+c.wide, c.ow)}
				b := colBlock[T]{patch: p, x: x[n*size : (n+1)*size], y: n*c.o*area + from*c.ow + left}
				if b.cols = b.x; !c.point {
					b.cols = cols[:c.taps*p.size()]
				}
				fn(b)
			}
		}
	}
}

// lay fills in a block's columns.
func (c *convolution[T]) lay(b colBlock[T]) {
	if !c.point {
		im2col(&c.sliding, b.x, b.cols, b.patch)
	}
}

// mostTerms is how many products a sum may have to be better added up directly: a library's product
// with columns pays from there on.
const mostTerms = 400

// sums says whether sums of so many products are better added up directly: where there are vectors
// to do so, and the images with their padding are not much larger than without.
func (s *sliding) sums(terms int, k string) bool {
	if k == "plain" || s.Kernel == [2]int{1, 1} || terms == 0 || terms > mostTerms || s.Stride[0]*s.Stride[1] > 16 || s.n*s.c*s.h*s.w == 0 {
		return false
	}
	padded := (s.h + s.Before[0] + s.After[0]) * (s.w + s.Before[1] + s.After[1])
	results := (s.oh + s.Kernel[0]*s.Dilation[0]) * (s.ow + s.Kernel[1]*s.Dilation[1])
	return max(padded, results) <= 8*s.h*s.w+1<<12
}

// summer is a convolution, or a gradient of one, that is added up directly.
type summer[T conv.Float] interface{ compute(o, a, b []T) }

func summed[T conv.Float](s summer[T]) parallel.Body {
	return func(outs, ins [][]byte) error {
		s.compute(device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]))
		return nil
	}
}

// convolutionBody is a convolution or one of its gradients. Elements that come out as NaN are
// computed again: see [redone].
func convolutionBody[T conv.Float](i kernels.Instr, in []kernels.Type, out kernels.Type, g blas.Gemmer) parallel.Body {
	k := conv.All[T]()[0]
	switch i := i.(type) {
	case kernels.Conv2d:
		s, o := newSliding(i.Window, in[0].Shape), in[1].Shape[0]
		run := convBody[T](i, in, g)
		if s.sums(s.taps, k.Name) {
			run = summed(newDirect(k, s, o))
		}
		return redone(run, exactConv[T](&s, o))
	case kernels.Conv2dGradX:
		s, o := newSliding(i.Window, out.Shape), in[0].Shape[0]
		run := convGradXBody[T](i, in, out, g)
		if s.sums(o*i.Kernel[0]*i.Kernel[1], k.Name) {
			run = summed(directGradX[T]{newDirectGradX(k, s, o)})
		}
		return redone(run, exactGradX[T](&s, o))
	}
	grad := i.(kernels.Conv2dGradW)
	s, o := newSliding(grad.Window, in[0].Shape), in[1].Shape[1]
	run := convGradWBody[T](grad, in, g)
	if s.sums(s.taps, k.Name) {
		run = summed(newDirectGradW(k, s, o))
	}
	return redone(run, exactGradW[T](&s, o))
}

func convBody[T conv.Float](i kernels.Conv2d, in []kernels.Type, g blas.Gemmer) parallel.Body {
	c := newConvolution[T](i.Window, in[0].Shape, in[1].Shape[0], g)
	return func(outs, ins [][]byte) error {
		y, x, w := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		c.blocks(x, func(b colBlock[T]) {
			c.lay(b)
			p := blas.Contiguous(false, false, c.o, b.size(), c.taps)
			p.LDC = c.oh * c.ow
			blas.Multiply(p, g, w, b.cols, y[b.y:])
		})
		return nil
	}
}

func convGradXBody[T conv.Float](i kernels.Conv2dGradX, in []kernels.Type, out kernels.Type, g blas.Gemmer) parallel.Body {
	c := newConvolution[T](i.Window, out.Shape, in[0].Shape[0], g)
	return func(outs, ins [][]byte) error {
		x, w, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		clear(x)
		c.blocks(x, func(b colBlock[T]) {
			p := blas.Contiguous(true, false, c.taps, b.size(), c.o)
			p.LDB = c.oh * c.ow
			blas.Multiply(p, g, w, gy[b.y:], b.cols)
			if !c.point {
				col2im(&c.sliding, b.cols, b.x, b.patch)
			}
		})
		return nil
	}
}

func convGradWBody[T conv.Float](i kernels.Conv2dGradW, in []kernels.Type, g blas.Gemmer) parallel.Body {
	c := newConvolution[T](i.Window, in[0].Shape, in[1].Shape[1], g)
	return func(outs, ins [][]byte) error {
		w, x, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		clear(w)
		c.blocks(x, func(b colBlock[T]) {
			c.lay(b)
			p := blas.Contiguous(false, true, c.o, c.taps, b.size())
			p.LDA, p.Add = c.oh*c.ow, true
			blas.Multiply(p, g, gy[b.y:], b.cols, w)
		})
		return nil
	}
}
