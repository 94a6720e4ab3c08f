package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
)

// pooling is a window over planes of h×w elements, one result plane of oh×ow each.
type pooling struct {
	Window
	h, w, oh, ow int
}

func newPooling(w Window, x, y device.Shape) pooling {
	return pooling{w.whole(), x[2], x[3], y[2], y[3]}
}

// seen is the part of the window that lies in the image for a position along an axis: its first element there, and how many.
func (p *pooling) seen(axis, at int) (first, n int) {
	size, d := [2]int{p.h, p.w}[axis], p.Dilation[axis]
	first = at*p.Stride[axis] - p.Before[axis]
	n = p.Kernel[axis]
	if first < 0 {
		skip := (-first + d - 1) / d
		first, n = first+skip*d, n-skip
	}
	if over := first + (n-1)*d - (size - 1); over > 0 {
		n -= (over + d - 1) / d
	}
	return first, max(n, 0)
}

// maxAt is the largest element under the window at (oy, ox) of plane x, and its place; −1 for none.
func maxAt[T device.Float](p *pooling, x []T, oy, ox int) (T, int) {
	y0, ny := p.seen(0, oy)
	x0, nx := p.seen(1, ox)
	best, at := T(math.Inf(-1)), -1
	for ky := range ny {
		row := (y0 + ky*p.Dilation[0]) * p.w
		for kx := range nx {
			k := row + x0 + kx*p.Dilation[1]
			if v := x[k]; at < 0 || v > best || v != v {
				best, at = v, k
			}
		}
	}
	return best, at
}

// planes calls fn with where each of n planes begins, in images and in results.
func (p *pooling) planes(n int, fn func(x, y int)) {
	for k := range n {
		fn(k*p.h*p.w, k*p.oh*p.ow)
	}
}

// positions calls fn with each position of the window and its place in a plane of results.
func (p *pooling) positions(fn func(oy, ox, at int)) {
	for oy := range p.oh {
		for ox := range p.ow {
			fn(oy, ox, oy*p.ow+ox)
		}
	}
}

func maxPoolBody[T device.Float](i MaxPool2d, in, out Type) body {
	p, n := newPooling(i.Window, in.Shape, out.Shape), in.Shape[:2].Elems()
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		p.planes(n, func(from, to int) {
			x, o := x[from:from+p.h*p.w], o[to:to+p.oh*p.ow]
			p.positions(func(oy, ox, at int) { o[at], _ = maxAt(&p, x, oy, ox) })
		})
		return nil
	}
}

func maxPoolGradBody[T device.Float](i MaxPool2dGrad, in []Type) body {
	p, n := newPooling(i.Window, in[0].Shape, in[1].Shape), in[0].Shape[:2].Elems()
	return func(outs, ins [][]byte) error {
		o, x, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		p.planes(n, func(from, to int) {
			x, o, gy := x[from:from+p.h*p.w], o[from:from+p.h*p.w], gy[to:to+p.oh*p.ow]
			clear(o)
			p.positions(func(oy, ox, at int) {
				if _, best := maxAt(&p, x, oy, ox); best >= 0 {
					o[best] += gy[at]
				}
			})
		})
		return nil
	}
}

// among is what a mean divides by for ny×nx elements inside of the image.
func (i AvgPool2d) among(ny, nx int) float64 {
	if i.Inside {
		return float64(max(ny*nx, 1))
	}
	return float64(i.Kernel[0]) * float64(i.Kernel[1])
}

func avgPoolBody[T device.Float](i AvgPool2d, in, out Type) body {
	p, n := newPooling(i.Window, in.Shape, out.Shape), in.Shape[:2].Elems()
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		p.planes(n, func(from, to int) {
			x, o := x[from:from+p.h*p.w], o[to:to+p.oh*p.ow]
			p.positions(func(oy, ox, at int) {
				y0, ny := p.seen(0, oy)
				x0, nx := p.seen(1, ox)
				s := 0.0
				for ky := range ny {
					for kx := range nx {
						s += float64(x[(y0+ky*p.Dilation[0])*p.w+x0+kx*p.Dilation[1]])
					}
				}
				o[at] = T(s / i.among(ny, nx))
			})
		})
		return nil
	}
}

func avgPoolGradBody[T device.Float](i AvgPool2dGrad, in, out Type) body {
	p, n := newPooling(i.Window, out.Shape, in.Shape), in.Shape[:2].Elems()
	return func(outs, ins [][]byte) error {
		o, gy := device.As[T](outs[0]), device.As[T](ins[0])
		p.planes(n, func(from, to int) {
			o, gy := o[from:from+p.h*p.w], gy[to:to+p.oh*p.ow]
			clear(o)
			p.positions(func(oy, ox, at int) {
				y0, ny := p.seen(0, oy)
				x0, nx := p.seen(1, ox)
				share := T(float64(gy[at]) / i.among(ny, nx))
				for ky := range ny {
					for kx := range nx {
						o[(y0+ky*p.Dilation[0])*p.w+x0+kx*p.Dilation[1]] += share
					}
				}
			})
		})
		return nil
	}
}
