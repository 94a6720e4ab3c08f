package kernels

import (
	"slices"

	"github.com/weft-project/weft/device"
)

// Moves look at bytes only, so that every bit survives.

// move is a part of a result: a copy of an operand, or zeros.
type move struct {
	copying
	in int // which operand; −1: zeros
}

func moveBody(i Instr, in []Type, out Type) body {
	if out.Shape.Elems() == 0 {
		return func(outs, ins [][]byte) error { return nil }
	}
	zero := make([]byte, 8)
	var moves []move
	size := out.Dtype.Size()
	switch i := i.(type) {
	case Pad:
		moves = padMoves(size, i, in[0].Shape, out.Shape)
	case Concat:
		at := 0
		for k, t := range in {
			if n := t.Shape[i.Axis]; n > 0 {
				moves = append(moves, move{newCopying(size, sliceOf(out.Shape, i.Axis, at, at+n), Whole(t.Shape)), k})
				at += n
			}
		}
	default:
		moves = []move{{newCopying(size, Whole(out.Shape), readBy(i, in[0].Shape, out.Shape)), 0}}
	}
	return func(outs, ins [][]byte) error {
		for _, m := range moves {
			x := zero
			if m.in >= 0 {
				x = ins[m.in]
			}
			m.copy(outs[0], x, 0, m.parts())
		}
		return nil
	}
}

// readBy is the view by which a move of one operand reads it.
func readBy(i Instr, x, out device.Shape) *View {
	switch i := i.(type) {
	case BroadcastTo:
		return &View{Shape: out, Strides: broadcastStrides(x, out)}
	case Transpose:
		own, v := rowMajor(x), &View{Shape: out, Strides: make([]int, len(x))}
		for k, axis := range i.Perm {
			v.Strides[k] = own[axis]
		}
		return v
	case Slice:
		return sliceOf(x, i.Axis, i.Start, i.Stop)
	}
	return Whole(out) // Reshape
}

// sliceOf is the view of [start, stop) of an axis of a contiguous tensor.
func sliceOf(s device.Shape, axis, start, stop int) *View {
	own := rowMajor(s)
	return &View{Shape: withExtent(s, axis, stop-start), Offset: start * own[axis], Strides: own}
}

func padMoves(size int, i Pad, x, out device.Shape) (moves []move) {
	part := func(start, stop, in int) {
		if start == stop {
			return
		}
		to := sliceOf(out, i.Axis, start, stop)
		from := &View{Shape: to.Shape, Strides: make([]int, len(out))}
		if in >= 0 {
			from = Whole(x)
		}
		moves = append(moves, move{newCopying(size, to, from), in})
	}
	end := i.Before + x[i.Axis]
	part(0, i.Before, -1)
	part(i.Before, end, 0)
	part(end, end+i.After, -1)
	return slices.Clip(moves)
}
