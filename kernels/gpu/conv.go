package gpu

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// columnBytes bounds how much of a batch of images is laid out in columns at a time.
const columnBytes = 256 << 20

// lowerConv makes the launches of convolutions: products with what the kernel sees, laid out in
// columns.
func (b *backend) lowerConv(i kernels.Instr, in, out []kernels.Type) (*code, error) {
	c := &code{}
	var err error
	switch i := i.(type) {
	case kernels.Im2col:
		err = b.columns(c, "im2col_", outArg(0), inArg(0), slide(i.Window, in[0], out[0], i.Rows), i.Rows)
	case kernels.Col2im:
		err = b.columns(c, "col2im_", outArg(0), inArg(0), slide(i.Window, out[0], in[0], i.Rows), i.Rows)
	case kernels.Conv2d:
		err = b.conv(c, newConvolution(i.Window, in[0], in[1], out[0]))
	case kernels.Conv2dGradX:
		err = b.convGradX(c, newConvolution(i.Window, out[0], in[0], in[1]))
	case kernels.Conv2dGradW:
		err = b.convGradW(c, newConvolution(i.Window, in[0], out[0], in[1]))
	default:
		return nil, unknown(i)
	}
	return c, err
}

// mostElems bounds what threads count in 32 bits, in steps of a whole grid.
const mostElems = 1<<31 - 1<<25

// slid is a window over n images of c channels of h×w, in oh×ow steps.
type slid struct {
	kernels.Window
	dtype           device.Dtype
	n, c, h, w      int
	oh, ow          int
	image, unfolded int // elements of one
}

// slide knows the steps from the columns.
func slide(w kernels.Window, x, cols kernels.Type, rows bool) slid {
	w = w.Whole()
	s := slid{Window: w, dtype: x.Dtype, n: x.Shape[0], c: x.Shape[1], h: x.Shape[2], w: x.Shape[3]}
	for a, size := range [2]int{s.h, s.w} {
		steps := (size+w.Before[a]+w.After[a]-(w.Kernel[a]-1)*w.Dilation[a]-1)/w.Stride[a] + 1
		if a == 0 {
			s.oh = steps
		} else {
			s.ow = steps
		}
	}
	return s.sized()
}

func (s slid) sized() slid {
	s.image = s.c * s.h * s.w
	s.unfolded = s.taps() * s.oh * s.ow
	return s
}

func (s *slid) taps() int { return s.c * s.Kernel[0] * s.Kernel[1] }

// args adds the numbers that kernels take of a window.
func (s *slid) args(l *launch) {
	for _, n := range []int{s.h, s.w, s.oh, s.ow, s.Kernel[0], s.Kernel[1], s.Stride[0], s.Stride[1], s.Before[0], s.Before[1], s.Dilation[0], s.Dilation[1]} {
		l.u32(n)
	}
}

// each is a launch with a thread for each of many elements, of which so many are in each of count
// groups. The kernel goes on where there are more.
func (c *code) each(f cuda.Func, elems, count int) *launch {
	const threads = 256
	l := c.call(f, min((elems+threads-1)/threads, 1<<16), threads)
	l.grid[1] = uint32(min(count, 65535))
	return l
}

// columns launches im2col or col2im.
func (b *backend) columns(c *code, name string, to, from arg, s slid, rows bool) error {
	if max(s.image, s.unfolded) > mostElems {
		return fmt.Errorf("%w: an image of more than %d elements", kernels.ErrOperands, mostElems)
	}
	f, err := b.kernel("conv", name+suffix(s.dtype), 0)
	if err != nil {
		return err
	}
	made := s.unfolded
	if name == "col2im_" {
		made = s.image
	}
	s.args(c.each(f, made, s.n).arg(to).arg(from).u32(s.n).flag(rows).u32(s.c))
	return nil
}

// convolution is one of the three products of images x, kernels w and results y.
type convolution struct {
	slid
	o     int  // channels of the results
	plain bool // the columns are the images
	chunk int  // images at a time
}

func newConvolution(w kernels.Window, x, k, y kernels.Type) *convolution {
	v := &convolution{slid: slid{Window: w.Whole(), dtype: x.Dtype, n: x.Shape[0], c: x.Shape[1], h: x.Shape[2], w: x.Shape[3], oh: y.Shape[2], ow: y.Shape[3]}.sized(), o: k.Shape[0]}
	one := [2]int{1, 1}
	v.plain = v.Kernel == one && v.Stride == one && v.Before == [2]int{} && v.After == [2]int{}
	v.chunk = max(1, min(v.n, columnBytes/max(1, v.unfolded*v.dtype.Size())))
	return v
}

// elems is the byte where so many elements begin.
func (v *convolution) elems(n int) uint64 { return uint64(n * v.dtype.Size()) }

// chunks calls fn for images [from, from+n) at a time, with scratch for their columns.
func (v *convolution) chunks(c *code, fn func(from, n int, cols arg) error) error {
	cols := arg{}
	if !v.plain {
		cols = scratchArg(c.temp(v.chunk * v.unfolded * v.dtype.Size()))
	}
	for from := 0; from < v.n; from += v.chunk {
		if err := fn(from, min(v.chunk, v.n-from), cols); err != nil {
			return err
		}
	}
	return nil
}

// unfold gives the columns of images [from, from+n) of operand k.
func (v *convolution) unfold(b *backend, c *code, k, from, n int, cols arg) (arg, error) {
	x := inArg(k).plus(v.elems(from * v.image))
	if v.plain {
		return x, nil
	}
	s := v.slid
	s.n = n
	return cols, b.columns(c, "im2col_", cols, x, s, false)
}

// conv is y = w·columns(x), for each image.
func (b *backend) conv(c *code, v *convolution) error {
	taps, steps := v.taps(), v.oh*v.ow
	err := v.chunks(c, func(from, n int, cols arg) error {
		cols, err := v.unfold(b, c, 0, from, n, cols)
		if err != nil {
			return err
		}
		return b.multiply(c, &products{
			dtype: v.dtype, to: outArg(0).plus(v.elems(from * v.o * steps)), m: v.o, n: steps, k: taps, dims: []int{n},
			a: side{at: inArg(1), batch: []int{0}, rows: v.o, cols: taps, row: taps, col: 1},
			b: side{at: cols, batch: []int{taps * steps}, rows: taps, cols: steps, row: steps, col: 1},
		})
	})
	if err != nil {
		return err
	}
	return b.again(c, "conv_again_", v, v.o*steps, v.n, inArg(0), inArg(1))
}

// again has what came out as NaN added up again where there is padding: zeros that stand for it
// were multiplied.
func (b *backend) again(c *code, name string, v *convolution, elems, count int, x, y arg) error {
	if v.Before == [2]int{} && v.After == [2]int{} || v.n == 0 {
		return nil
	}
	f, err := b.kernel("conv", name+suffix(v.dtype), 0)
	if err != nil {
		return err
	}
	v.args(c.each(f, elems, count).arg(outArg(0)).arg(x).arg(y).u32(v.n).u32(v.o).u32(v.c))
	return nil
}

// convGradX is the images whose columns are wᵀ·gy.
func (b *backend) convGradX(c *code, v *convolution) error {
	taps, steps := v.taps(), v.oh*v.ow
	return v.chunks(c, func(from, n int, cols arg) error {
		x := outArg(0).plus(v.elems(from * v.image))
		if v.plain {
			cols = x
		}
		err := b.multiply(c, &products{
			dtype: v.dtype, to: cols, m: taps, n: steps, k: v.o, dims: []int{n},
			a: side{at: inArg(0), batch: []int{0}, rows: taps, cols: v.o, row: 1, col: taps},
			b: side{at: inArg(1).plus(v.elems(from * v.o * steps)), batch: []int{v.o * steps}, rows: v.o, cols: steps, row: steps, col: 1},
		})
		if err != nil || v.plain {
			return err
		}
		s := v.slid
		s.n = n
		return b.columns(c, "col2im_", x, cols, s, false)
	})
}

// convGradW is gy·columns(x)ᵀ, added up over the images: some of them by each of several blocks.
func (b *backend) convGradW(c *code, v *convolution) error {
	taps, steps := v.taps(), v.oh*v.ow
	result := v.o * taps
	per, slots := v.share()
	whole := b.library() != nil || b.narrows(v.dtype)
	if whole {
		slots = (v.n + v.chunk - 1) / v.chunk
	}
	parts := kernels.Type{Dtype: v.dtype, Shape: device.Shape{slots, result}}
	if err := parts.Shape.Check(); err != nil {
		return fmt.Errorf("%w: %w", kernels.ErrOperands, err)
	}
	to := outArg(0)
	if slots > 1 {
		to = scratchArg(c.temp(parts.Bytes()))
	}
	if slots == 0 { // no images
		zero, err := b.generate(kernels.Fill{Type: kernels.Type{Dtype: v.dtype, Shape: device.Shape{result}}}, nil)
		if err != nil {
			return err
		}
		c.inline(zero, []arg{to}, nil)
		return nil
	}
	slot := 0
	err := v.chunks(c, func(from, n int, cols arg) error {
		if whole {
			slot++
			return b.gradWhole(c, v, from, n, to.plus(v.elems((slot-1)*result)), cols)
		}
		cols, err := v.unfold(b, c, 0, from, n, cols)
		if err != nil {
			return err
		}
		p := &products{
			dtype: v.dtype, to: to.plus(v.elems(slot * result)), m: v.o, n: taps, k: n * steps,
			inner: max(steps, 1), per: per, splits: (n + per - 1) / per, pieceA: v.o * steps, pieceB: taps * steps,
			a: side{at: inArg(1).plus(v.elems(from * v.o * steps)), rows: v.o, cols: steps, row: steps, col: 1},
			b: side{at: cols, rows: steps, cols: taps, row: 1, col: steps},
		}
		slot += p.splits
		return b.multiply(c, p)
	})
	if err != nil {
		return err
	}
	again := func() error { return b.again(c, "conv_grad_again_", v, result, 1, inArg(0), inArg(1)) }
	if slots == 1 {
		return again()
	}
	sum := kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}
	added, err := b.generate(sum, []kernels.Type{parts})
	if err != nil {
		return err
	}
	c.inline(added, []arg{outArg(0)}, []arg{to})
	return again()
}

// gradWhole is the part of convGradW that is of images [from, from+n), as one product: the steps of
// all of them lie in a row.
func (b *backend) gradWhole(c *code, v *convolution, from, n int, to, cols arg) error {
	taps, steps := v.taps(), v.oh*v.ow
	gy, err := b.swapped(c, v, inArg(1).plus(v.elems(from*v.o*steps)), [3]int{n, v.o, steps}, []int{1, 0, 2})
	if err != nil {
		return err
	}
	if v.plain {
		cols, err = b.swapped(c, v, inArg(0).plus(v.elems(from*v.image)), [3]int{n, taps, steps}, []int{0, 2, 1})
	} else {
		s := v.slid
		s.n = n
		err = b.columns(c, "im2col_", cols, inArg(0).plus(v.elems(from*v.image)), s, true)
	}
	if err != nil {
		return err
	}
	k := n * steps
	return b.multiply(c, &products{
		dtype: v.dtype, to: to, m: v.o, n: taps, k: k,
		a: side{at: gy, rows: v.o, cols: k, row: k, col: 1},
		b: side{at: cols, rows: k, cols: taps, row: taps, col: 1},
	})
}

// swapped is a tensor of a convolution with its axes in another order.
func (b *backend) swapped(c *code, v *convolution, x arg, shape [3]int, perm []int) (arg, error) {
	t := kernels.Type{Dtype: v.dtype, Shape: shape[:]}
	move, err := b.generate(kernels.Transpose{Perm: perm}, []kernels.Type{t})
	if err != nil {
		return arg{}, err
	}
	to := scratchArg(c.temp(t.Bytes()))
	c.inline(move, []arg{to}, []arg{x})
	return to, nil
}

// share is how many images one block adds up, and how many parts that makes of all.
func (v *convolution) share() (per, slots int) {
	blocks := (v.o + smallTile - 1) / smallTile * ((v.taps() + smallTile - 1) / smallTile)
	splits := max(1, min(v.n, fewBlocks/max(blocks, 1)))
	per = min(max(1, (v.n+splits-1)/splits), v.chunk)
	for from := 0; from < v.n; from += v.chunk {
		slots += (min(v.chunk, v.n-from) + per - 1) / per
	}
	return per, slots
}
