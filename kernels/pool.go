package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/conv"
)

// pooling is a window over n planes of h×w elements, one plane of oh×ow results each.
type pooling struct {
	n, h, w, oh, ow int
	ys, xs          []span // what each row and column of results sees
	dy, dx          int    // the distance from one row or column that is seen to the next
	halves          bool   // 2×2 elements side by side
}

// span is the part of a window along an axis that lies in the image: its first element there, and how many.
type span struct{ first, n int }

func newPooling(w Window, x, y device.Shape) *pooling {
	w = w.whole()
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

func spans(w Window, axis, size, out int) []span {
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

// planes calls fn with where each plane begins, in images and in results.
func (p *pooling) planes(fn func(x, y int)) {
	for k := range p.n {
		fn(k*p.h*p.w, k*p.oh*p.ow)
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

func maxPoolBody[T conv.Float](i MaxPool2d, in, out Type) body {
	p, fast := newPooling(i.Window, in.Shape, out.Shape), conv.All[T]()[0].MaxPool
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		p.planes(func(from, to int) {
			x, o := x[from:from+p.h*p.w], o[to:to+p.oh*p.ow]
			if fast != nil && p.halves && fast(o, x, p.oh, p.ow, p.w) {
				return
			}
			for oy, y := range p.ys {
				for ox, col := range p.xs {
					o[oy*p.ow+ox], _ = maxAt(p, x, y, col)
				}
			}
		})
		return nil
	}
}

func maxPoolGradBody[T conv.Float](i MaxPool2dGrad, in []Type) body {
	p, fast := newPooling(i.Window, in[0].Shape, in[1].Shape), conv.All[T]()[0].MaxPoolGrad
	return func(outs, ins [][]byte) error {
		o, x, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		p.planes(func(from, to int) {
			x, o, gy := x[from:from+p.h*p.w], o[from:from+p.h*p.w], gy[to:to+p.oh*p.ow]
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
		return nil
	}
}

// among is what a mean divides by, for n elements inside of the image.
func (i AvgPool2d) among(n int) float64 {
	if i.Inside {
		return float64(max(n, 1))
	}
	return float64(i.Kernel[0]) * float64(i.Kernel[1])
}

func avgPoolBody[T conv.Float](i AvgPool2d, in, out Type) body {
	p := newPooling(i.Window, in.Shape, out.Shape)
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		p.planes(func(from, to int) {
			x, o := x[from:from+p.h*p.w], o[to:to+p.oh*p.ow]
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
					o[oy*p.ow+ox] = T(s / i.among(y.n*col.n))
				}
			}
		})
		return nil
	}
}

func avgPoolGradBody[T conv.Float](i AvgPool2dGrad, in, out Type) body {
	p := newPooling(i.Window, out.Shape, in.Shape)
	return func(outs, ins [][]byte) error {
		o, gy := device.As[T](outs[0]), device.As[T](ins[0])
		p.planes(func(from, to int) {
			o, gy := o[from:from+p.h*p.w], gy[to:to+p.oh*p.ow]
			clear(o)
			for oy, y := range p.ys {
				for ox, col := range p.xs {
					share := T(float64(gy[oy*p.ow+ox]) / i.among(y.n*col.n))
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
		return nil
	}
}
