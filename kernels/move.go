package kernels

import (
	"slices"

	"github.com/weft-project/weft/device"
)

// Moves look at bytes only: elements of 4 bytes travel as int32, of 8 as int64, so that every bit survives.

func moveBody[E int32 | int64](i Instr, in []Type, out Type) body {
	x := in[0].Shape
	switch i := i.(type) {
	case BroadcastTo:
		return stridedBody[E](i.Shape, broadcastStrides(x, i.Shape))
	case Transpose:
		own, st := rowMajor(x), make([]int, len(x))
		for k, axis := range i.Perm {
			st[k] = own[axis]
		}
		return stridedBody[E](out.Shape, st)
	case Slice:
		outer, n, inner := lines(x, i.Axis)
		return blocksBody(out, outer, []block{{at: i.Start * inner, n: (i.Stop - i.Start) * inner, stride: n * inner}})
	case Pad:
		outer, n, inner := lines(x, i.Axis)
		return blocksBody(out, outer, []block{
			{n: i.Before * inner, zero: true}, {n: n * inner, stride: n * inner}, {n: i.After * inner, zero: true},
		})
	case Concat:
		var parts []block
		for k, t := range in {
			_, n, inner := lines(t.Shape, i.Axis)
			parts = append(parts, block{in: k, n: n * inner, stride: n * inner})
		}
		outer, _, _ := lines(x, i.Axis)
		return blocksBody(out, outer, parts)
	}
	return func(outs, ins [][]byte) error { // Reshape
		copy(outs[0], ins[0])
		return nil
	}
}

// block is a run of elements that the result takes from an operand in each round, or zeros.
type block struct {
	in     int // which operand
	at, n  int // where in the first round, and how many
	stride int // from round to round
	zero   bool
}

// blocksBody lays the blocks one after the other, for each of some rounds.
func blocksBody(out Type, rounds int, blocks []block) body {
	size := out.Dtype.Size()
	blocks = slices.Clone(blocks)
	return func(outs, ins [][]byte) error {
		o := outs[0]
		if len(o) == 0 {
			return nil
		}
		for r := range rounds {
			for _, b := range blocks {
				if b.zero {
					clear(o[:b.n*size])
				} else {
					copy(o[:b.n*size], ins[b.in][(r*b.stride+b.at)*size:])
				}
				o = o[b.n*size:]
			}
		}
		return nil
	}
}

// stridedBody reads the operand by strides and writes the result in order.
func stridedBody[E int32 | int64](s device.Shape, strides []int) body {
	w := newWalk(s, rowMajor(s), strides)
	step := w.inner[1]
	tiled := slices.Index(w.outer[1], 1) // the axis along which the operand's elements are neighbours
	if step > 1 && tiled >= 0 {
		return tiledBody[E](w, tiled)
	}
	return func(outs, ins [][]byte) error {
		o, x := device.As[E](outs[0]), device.As[E](ins[0])
		w.runs(func(off []int) {
			to := o[off[0] : off[0]+w.n]
			if step == 1 {
				copy(to, x[off[1]:])
				return
			}
			from := off[1]
			for k := range to {
				to[k] = x[from]
				from += step
			}
		})
		return nil
	}
}

// tile is the side of the squares in which a transposed pair of axes is copied; two of them fit the first cache.
const tile = 32

// tiledBody copies in squares over the last axis and the axis along which the operand is contiguous.
func tiledBody[E int32 | int64](w walk, axis int) body {
	rows, rowStep, step := w.dims[axis], w.outer[0][axis], w.inner[1]
	dims := slices.Delete(slices.Clone(w.dims), axis, axis+1)
	outer := [][]int{
		slices.Delete(slices.Clone(w.outer[0]), axis, axis+1), slices.Delete(slices.Clone(w.outer[1]), axis, axis+1),
	}
	return func(outs, ins [][]byte) error {
		o, x := device.As[E](outs[0]), device.As[E](ins[0])
		if len(o) == 0 {
			return nil
		}
		each(dims, outer, func(off []int) {
			for r0 := 0; r0 < rows; r0 += tile {
				for c0 := 0; c0 < w.n; c0 += tile {
					for r := r0; r < min(r0+tile, rows); r++ {
						to, from := o[off[0]+r*rowStep:], x[off[1]+r:]
						for c := c0; c < min(c0+tile, w.n); c++ {
							to[c] = from[c*step]
						}
					}
				}
			}
		})
		return nil
	}
}
