package kernels

import (
	"slices"

	"github.com/weft-project/weft/device"
)

// Moves look at bytes only: elements of 4 bytes travel as int32, of 8 as int64, so that every bit survives.

// move is a part of a result: a copy of an operand, or zeros.
type move[E int32 | int64] struct {
	*copier[E]
	in int // which operand; −1: zeros
}

func moveBody[E int32 | int64](i Instr, in []Type, out Type) body {
	if out.Shape.Elems() == 0 {
		return func(outs, ins [][]byte) error { return nil }
	}
	var moves []move[E]
	switch i := i.(type) {
	case Pad:
		moves = padMoves[E](i, in[0].Shape, out.Shape)
	case Concat:
		at := 0
		for k, t := range in {
			if n := t.Shape[i.Axis]; n > 0 {
				moves = append(moves, move[E]{newCopier[E](sliceOf(out.Shape, i.Axis, at, at+n), Whole(t.Shape)), k})
				at += n
			}
		}
	default:
		moves = []move[E]{{newCopier[E](Whole(out.Shape), readBy(i, in[0].Shape, out.Shape)), 0}}
	}
	return func(outs, ins [][]byte) error {
		o := device.As[E](outs[0])
		zero := [1]E{}
		for _, m := range moves {
			x := zero[:]
			if m.in >= 0 {
				x = device.As[E](ins[m.in])
			}
			m.run(o, x, 0, m.units)
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

func padMoves[E int32 | int64](i Pad, x, out device.Shape) (moves []move[E]) {
	part := func(start, stop, in int) {
		if start == stop {
			return
		}
		to := sliceOf(out, i.Axis, start, stop)
		from := &View{Shape: to.Shape, Strides: make([]int, len(out))}
		if in >= 0 {
			from = Whole(x)
		}
		moves = append(moves, move[E]{newCopier[E](to, from), in})
	}
	end := i.Before + x[i.Axis]
	part(0, i.Before, -1)
	part(i.Before, end, 0)
	part(end, end+i.After, -1)
	return slices.Clip(moves)
}
