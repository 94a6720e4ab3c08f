package images

import (
	"math"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/conv"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// pooling is a window over n planes of h×w elements, one plane of oh×ow results each.
type pooling struct {
	n, h, w, oh, ow int
	ys, xs          []span // what each row and column of results sees
	dy, dx          int    // the distance from one row or column that is seen to the next
	halves          bool   // 2×2 elements side by side
}

// span is the part of a window along an axis that lies in the image: its first element there, and
// how many.
type span struct{ first, n int }

func newPooling(w kernels.Window, x, y device.Shape) *pooling {
	w = w.Whole()
	two := [2]int{2, 2}
	p := &pooling{
		n: x[0] * x[1], h: x[2], w: x[3], oh: y[2], ow: y[3], dy: w.Dilation[0], dx: w.Dilation[1],
		halves: w.Kernel == two && w.Stride == two && w.Dilation == [2]int{1, 1} && w.Before == [2]int{} && 2*y[2] <= x[2] && 2*y[3] <= x[3],
	}
	if p.n > 0 {
		p.ys, p.xs = spans(w, 0, p.h, p.oh), spans(w, 1, p.w, p.ow)
	}
	return p
}

func spans(w kernels.Window, axis, size, out int) []span {
	s, d := make([]span, out), w.Dilation[axis]
	for at := range s {
		first, n := at*w.Stride[axis]-w.Before[axis], w.Kernel[axis]
		if first < 0 {
			skip := (-first + d - 1) / d
			first, n = first+skip*d, n-skip
		}
		if over := first + (n-1)*d - (size - 1); over > 0 {
			n -= (over + d - 1) / d
		}
		s[at] = span{first, max(n, 0)}
	}
	return s
}

// planeRun goes over the planes of a result and one or two operands.
type planeRun[T conv.Float] struct {
	size  [3]int // of a plane of each
	mem   [3][]T
	plane func(a, b, c []T)
}

func (r *planeRun[T]) Piece(from, to int) {
	cut := func(k, n int) []T {
		if r.mem[k] == nil {
			return nil
		}
		return r.mem[k][n*r.size[k] : (n+1)*r.size[k]]
	}
	for n := from; n < to; n++ {
		r.plane(cut(0, n), cut(1, n), cut(2, n))
	}
}

// planeElems is how many elements of images a piece of work has at least.
const planeElems = 1 << 16

// planewise is a body that goes over planes of its result and operands, of the given sizes, one at
// a time.
func planewise[T conv.Float](p *pooling, size [3]int, plane func(o, a, b []T)) parallel.Body {
	idle := &sync.Pool{New: func() any { return &planeRun[T]{size: size, plane: plane} }}
	grain := max(1, planeElems/max(1, p.h*p.w))
	return func(outs, ins [][]byte) error {
		r := idle.Get().(*planeRun[T])
		r.mem[0] = device.As[T](outs[0])
		for k, in := range ins {
			r.mem[1+k] = device.As[T](in)
		}
		parallel.For(p.n, grain, r)
		clear(r.mem[:])
		idle.Put(r)
		return nil
	}
}

// maxAt is the largest element of plane x under a window, and its place; −1 for none.
func maxAt[T conv.Float](p *pooling, x []T, y, col span) (T, int) {
	best, at := T(math.Inf(-1)), -1
	for ky := range y.n {
		k := (y.first+ky*p.dy)*p.w + col.first
		for range col.n {
			if v := x[k]; v > best || at < 0 || v != v {
				best, at = v, k
			}
			k += p.dx
		}
	}
	return best, at
}

// maxPoolBody gives the largest element that each window sees.
func maxPoolBody[T conv.Float](i kernels.MaxPool2d, in, out kernels.Type) parallel.Body {
	p, fast := newPooling(i.Window, in.Shape, out.Shape), conv.All[T]()[0].MaxPool
	return planewise(p, [3]int{p.oh * p.ow, p.h * p.w}, func(o, x, _ []T) {
		if fast != nil && p.halves && fast(o, x, p.oh, p.ow, p.w) {
			return
		}
		for oy, y := range p.ys {
			for ox, col := range p.xs {
				o[oy*p.ow+ox], _ = maxAt(p, x, y, col)
			}
		}
	})
}

// maxPoolGradBody gives each gradient to the element that was the largest.
func maxPoolGradBody[T conv.Float](i kernels.MaxPool2dGrad, in []kernels.Type) parallel.Body {
	p, fast := newPooling(i.Window, in[0].Shape, in[1].Shape), conv.All[T]()[0].MaxPoolGrad
	return planewise(p, [3]int{p.h * p.w, p.h * p.w, p.oh * p.ow}, func(o, x, gy []T) {
		if !p.halves || 2*p.oh != p.h || 2*p.ow != p.w {
			clear(o)
		}
		if fast != nil && p.halves && fast(o, x, gy, p.oh, p.ow, p.w) {
			return
		}
		clear(o)
		for oy, y := range p.ys {
			for ox, col := range p.xs {
				if _, best := maxAt(p, x, y, col); best >= 0 {
					o[best] += gy[oy*p.ow+ox]
				}
			}
		}
	})
}

// among is what a mean divides by, for n elements inside of the image.
func among(i kernels.AvgPool2d, n int) float64 {
	if i.Inside {
		return float64(max(n, 1))
	}
	return float64(i.Kernel[0]) * float64(i.Kernel[1])
}

// avgPoolBody gives the mean of what each window sees.
func avgPoolBody[T conv.Float](i kernels.AvgPool2d, in, out kernels.Type) parallel.Body {
	p := newPooling(i.Window, in.Shape, out.Shape)
	return planewise(p, [3]int{p.oh * p.ow, p.h * p.w}, func(o, x, _ []T) {
		for oy, y := range p.ys {
			for ox, col := range p.xs {
				s := 0.0
				for ky := range y.n {
					k := (y.first+ky*p.dy)*p.w + col.first
					for range col.n {
						s += float64(x[k])
						k += p.dx
					}
				}
				o[oy*p.ow+ox] = T(s / among(i, y.n*col.n))
			}
		}
	})
}

// avgPoolGradBody shares each gradient out over what its window saw.
func avgPoolGradBody[T conv.Float](i kernels.AvgPool2dGrad, in, out kernels.Type) parallel.Body {
	p := newPooling(i.Window, out.Shape, in.Shape)
	return planewise(p, [3]int{p.h * p.w, p.oh * p.ow}, func(o, gy, _ []T) {
		clear(o)
		for oy, y := range p.ys {
			for ox, col := range p.xs {
				share := T(float64(gy[oy*p.ow+ox]) / among(i.AvgPool2d, y.n*col.n))
				for ky := range y.n {
					k := (y.first+ky*p.dy)*p.w + col.first
					for range col.n {
						o[k] += share
						k += p.dx
					}
				}
			}
		}
	})
}
