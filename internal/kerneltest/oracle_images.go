package kerneltest

import (
	"math"
	"math/bits"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// images is Oracle for the instructions of convolutional nets, and for random ones; false for
// others.
func images(i kernels.Instr, in []Tensor, out kernels.Type) (Tensor, bool) {
	res := Tensor{out, make([]float64, out.Shape.Elems())}
	switch i := i.(type) {
	case kernels.Im2col:
		slide(i.Window, in[0].Shape, func(s glimpse) { res.V[s.column(i.Rows)] = value(in[0], s.x) })
	case kernels.Col2im:
		slide(i.Window, out.Shape, func(s glimpse) { add(res, s.x, in[0].V[s.column(i.Rows)]) })
	case kernels.Conv2d:
		correlate(i.Window, in[0].Shape, out.Shape[1], func(x, w, y int) { add(res, y, in[0].V[x]*in[1].V[w]) })
	case kernels.Conv2dGradX:
		correlate(i.Window, out.Shape, in[0].Shape[0], func(x, w, y int) { add(res, x, in[0].V[w]*in[1].V[y]) })
	case kernels.Conv2dGradW:
		correlate(i.Window, in[0].Shape, out.Shape[0], func(x, w, y int) { add(res, w, in[0].V[x]*in[1].V[y]) })
	case kernels.MaxPool2d, kernels.MaxPool2dGrad:
		return maxPool(i, in, res), true
	case kernels.AvgPool2d:
		avgPool(i, in[0].Shape, func(x, y int, n float64) { add(res, y, value(in[0], x)/n) })
	case kernels.AvgPool2dGrad:
		avgPool(i.AvgPool2d, out.Shape, func(x, y int, n float64) { add(res, x, in[0].V[y]/n) })
	case kernels.Random:
		for k := range res.V {
			res.V[k] = draw(i, in[0], k)
		}
	case kernels.Dropout:
		for k := range res.V {
			if draw(kernels.Random{Fn: kernels.Bernoulli, P: 1 - i.P}, in[1], k) == 1 {
				res.V[k] = in[0].V[k] / (1 - i.P)
			}
		}
	default:
		return res, false
	}
	return res, true
}

// glimpse is one element of the kernel at one position in one channel of an image.
type glimpse struct {
	n, c, ky, kx, oy, ox int
	x                    int // the element of the image that it sees, −1 for padding
	channels, oh, ow     int
	w                    kernels.Window
}

// slide calls fn for everything that a window sees.
//
//go:norace
func slide(w kernels.Window, x device.Shape, fn func(s glimpse)) {
	ones := func(v [2]int) [2]int { return [2]int{max(v[0], 1), max(v[1], 1)} }
	w.Stride, w.Dilation = ones(w.Stride), ones(w.Dilation)
	places := func(a, size int) (n int) {
		for at := 0; at+(w.Kernel[a]-1)*w.Dilation[a] < size+w.Before[a]+w.After[a]; at += w.Stride[a] {
			n++
		}
		return n
	}
	oh, ow := places(0, x[2]), places(1, x[3])
	all := device.Shape{x[0], x[1], oh, ow, w.Kernel[0], w.Kernel[1]}
	for k := range all.Elems() {
		i := index(k, all)
		s := glimpse{n: i[0], c: i[1], oy: i[2], ox: i[3], ky: i[4], kx: i[5], channels: x[1], oh: oh, ow: ow, w: w}
		y, col := s.oy*w.Stride[0]+s.ky*w.Dilation[0]-w.Before[0], s.ox*w.Stride[1]+s.kx*w.Dilation[1]-w.Before[1]
		s.x = ((s.n*x[1]+s.c)*x[2]+y)*x[3] + col
		if y < 0 || y >= x[2] || col < 0 || col >= x[3] {
			s.x = -1
		}
		fn(s)
	}
}

// column is the place among columns.
//
//go:norace
func (s glimpse) column(rows bool) int {
	tap := (s.c*s.w.Kernel[0]+s.ky)*s.w.Kernel[1] + s.kx
	taps := s.channels * s.w.Kernel[0] * s.w.Kernel[1]
	if rows {
		return ((s.n*s.oh+s.oy)*s.ow+s.ox)*taps + tap
	}
	return ((s.n*taps+tap)*s.oh+s.oy)*s.ow + s.ox
}

// value is an element, 0 in the padding.
//
//go:norace
func value(x Tensor, at int) float64 {
	if at < 0 {
		return 0
	}
	return x.V[at]
}

// add adds to an element, and to nothing in the padding.
//
//go:norace
func add(x Tensor, at int, v float64) {
	if at >= 0 {
		x.V[at] += v
	}
}

// correlate calls fn for every product of a convolution with o channels out: the elements of
// images, kernels and results. Padding is no factor.
func correlate(w kernels.Window, x device.Shape, o int, fn func(x, w, y int)) {
	slide(w, x, func(s glimpse) {
		for c := range o {
			tap := ((c*s.channels+s.c)*s.w.Kernel[0]+s.ky)*s.w.Kernel[1] + s.kx
			if s.x >= 0 {
				fn(s.x, tap, ((s.n*o+c)*s.oh+s.oy)*s.ow+s.ox)
			}
		}
	})
}

func maxPool(i kernels.Instr, in []Tensor, res Tensor) Tensor {
	var w kernels.Window
	grad := false
	switch i := i.(type) {
	case kernels.MaxPool2d:
		w = i.Window
	case kernels.MaxPool2dGrad:
		w, grad = i.Window, true
	}
	best := map[int]int{} // element of the image by position; only those that see one
	positions := 0
	slide(w, in[0].Shape, func(s glimpse) {
		at := ((s.n*s.channels+s.c)*s.oh+s.oy)*s.ow + s.ox
		positions = max(positions, at+1)
		if s.x < 0 {
			return
		}
		have, ok := best[at]
		if v := in[0].V[s.x]; !ok || v > in[0].V[have] || math.IsNaN(v) {
			best[at] = s.x
		}
	})
	for at := range positions {
		k, ok := best[at]
		switch {
		case grad && ok:
			res.V[k] += in[1].V[at]
		case grad:
		case ok:
			res.V[at] = in[0].V[k]
		default:
			res.V[at] = math.Inf(-1)
		}
	}
	return res
}

// avgPool calls fn for everything that a mean is taken of, and how many there are.
func avgPool(i kernels.AvgPool2d, x device.Shape, fn func(x, y int, n float64)) {
	place := func(s glimpse) int { return ((s.n*s.channels+s.c)*s.oh+s.oy)*s.ow + s.ox }
	among := map[int]float64{}
	slide(i.Window, x, func(s glimpse) {
		if s.x >= 0 || !i.Inside {
			among[place(s)]++
		}
	})
	slide(i.Window, x, func(s glimpse) { fn(s.x, place(s), math.Max(among[place(s)], 1)) })
}

// draw is one random number, by the definition.
func draw(i kernels.Random, key Tensor, e int) float64 {
	seed, counter := uint64(int64(key.V[0])), uint64(int64(key.V[1]))
	if i.Fn == kernels.Bernoulli {
		if float64(Philox(seed, counter, uint64(e/4))[e%4]) < math.Round(math.Ldexp(i.P, 32)) {
			return 1
		}
		return 0
	}
	if i.Type.Dtype == device.Float32 {
		return math.Ldexp(float64(Philox(seed, counter, uint64(e/4))[e%4]>>8), -24)
	}
	w := Philox(seed, counter, uint64(e/2))
	return math.Ldexp(float64(uint64(w[e%2*2])<<21|uint64(w[e%2*2+1])>>11), -53)
}

// Philox is Philox4x32-10 (Salmon et al., SC 2011): four words of a block number and a counter
// under a seed.
func Philox(seed, counter, block uint64) [4]uint32 {
	key := [2]uint32{uint32(seed), uint32(seed >> 32)}
	ctr := [4]uint32{uint32(block), uint32(block >> 32), uint32(counter), uint32(counter >> 32)}
	for round := range uint32(10) {
		hi0, lo0 := bits.Mul32(ctr[0], 0xD2511F53)
		hi1, lo1 := bits.Mul32(ctr[2], 0xCD9E8D57)
		ctr = [4]uint32{hi1 ^ ctr[1] ^ (key[0] + round*0x9E3779B9), lo1, hi0 ^ ctr[3] ^ (key[1] + round*0xBB67AE85), lo0}
	}
	return ctr
}
