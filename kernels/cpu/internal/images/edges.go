package images

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/cpu/internal/conv"
	"github.com/weft-project/weft/kernels/cpu/internal/finite"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// Convolutions multiply what is not finite by zeros that stand for nothing: by padding, and by what
// lies between the rows of planes. That makes NaN, and nothing but NaN, where there should be a
// number. So elements that come out as NaN are computed again, by the definition.

// redone is a body whose NaN are computed again: at gives element k of the result from the
// operands.
func redone[T conv.Float](run parallel.Body, at func(k int, a, b []T) T) parallel.Body {
	return func(outs, ins [][]byte) error {
		err := run(outs, ins)
		if o := device.As[T](outs[0]); err == nil && finite.AnyNaN(o) {
			a, b := device.As[T](ins[0]), device.As[T](ins[1])
			for k, v := range o {
				if v != v {
					o[k] = at(k, a, b)
				}
			}
		}
		return err
	}
}

// exactConv, exactGradX and exactGradW are one element of a convolution of x with o kernels w, and
// of its gradients. A sum that is NaN stays so.
func exactConv[T conv.Float](s *sliding, o int) func(k int, x, w []T) T {
	return func(k int, x, w []T) (sum T) {
		area := s.oh * s.ow
		n, out, oy, ox := k/area/o, k/area%o, k%area/s.ow, k%s.ow
		for t := range s.taps {
			if at := s.sees(s.tap(t), oy, ox); at >= 0 {
				if sum += x[n*s.c*s.h*s.w+at] * w[out*s.taps+t]; sum != sum {
					break
				}
			}
		}
		return sum
	}
}

func exactGradX[T conv.Float](s *sliding, o int) func(k int, w, gy []T) T {
	return func(k int, w, gy []T) (sum T) {
		size, kernel := s.c*s.h*s.w, s.Kernel[0]*s.Kernel[1]
		n, c, at := k/size, k%size/(s.h*s.w), k%size
		for t := c * kernel; t < (c+1)*kernel; t++ {
			oy, ox := s.from(s.tap(t), at%(s.h*s.w)/s.w, at%s.w)
			for out := 0; out < o && oy >= 0; out++ {
				if sum += w[out*s.taps+t] * gy[((n*o+out)*s.oh+oy)*s.ow+ox]; sum != sum {
					return sum
				}
			}
		}
		return sum
	}
}

func exactGradW[T conv.Float](s *sliding, o int) func(k int, x, gy []T) T {
	return func(k int, x, gy []T) (sum T) {
		out, t := k/s.taps, s.tap(k%s.taps)
		from, to := s.span(t)
		for n := range s.n {
			for oy := range s.oh {
				for ox := from; ox < to; ox++ {
					if at := s.sees(t, oy, ox); at >= 0 {
						if sum += x[n*s.c*s.h*s.w+at] * gy[((n*o+out)*s.oh+oy)*s.ow+ox]; sum != sum {
							return sum
						}
					}
				}
			}
		}
		return sum
	}
}

// sees is what tap t sees of an image from position (oy, ox), −1 for padding.
func (s *sliding) sees(t tap, oy, ox int) int {
	row, x := s.row(t, oy), ox*s.Stride[1]+t.dx
	if row < 0 || x < 0 || x >= s.w {
		return -1
	}
	return row + x
}

// from is the position from which tap t sees (y, x) of an image, −1 for none.
func (s *sliding) from(t tap, y, x int) (oy, ox int) {
	y, x = y-t.dy, x-t.dx
	oy, ox = y/s.Stride[0], x/s.Stride[1]
	if y < 0 || x < 0 || y%s.Stride[0] != 0 || x%s.Stride[1] != 0 || oy >= s.oh || ox >= s.ow {
		return -1, -1
	}
	return oy, ox
}
