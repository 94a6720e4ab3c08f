package kernels

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// Move is a part of what an instruction that moves makes: a copy of an operand, or zeros. Both
// views have one shape.
type Move struct {
	In       int // which operand; −1: zeros
	To, From *View
}

// Moves are the copies that BroadcastTo, Reshape, Transpose, Slice, Pad, Concat, or one of them
// Viewed, is made of; none for another instruction. Infer accepts the operands.
func Moves(i Instr, in []Type) []Move {
	var views []*View
	if v, ok := i.(Viewed); ok {
		i, views = v.Of, v.In
		in = v.Seen(in)
	}
	switch i.(type) {
	case BroadcastTo, Reshape, Transpose, Slice, Pad, Concat:
		if out, err := i.Infer(in); err == nil {
			return movesOf(i, in, views, out[0])
		}
	}
	return nil
}

// movesOf is Moves with the views beside the instruction.
func movesOf(i Instr, in []Type, views []*View, out Type) (moves []Move) {
	add := func(to, from *View, in int) {
		if to.Shape.Elems() > 0 {
			moves = append(moves, Move{in, to, from})
		}
	}
	v := ViewOf(in, views, 0)
	switch i := i.(type) {
	case Pad:
		end := i.Before + v.Shape[i.Axis]
		for _, gap := range [][2]int{{0, i.Before}, {end, end + i.After}} {
			to := sliceOf(Whole(out.Shape), i.Axis, gap[0], gap[1])
			add(to, &View{Shape: to.Shape, Strides: make([]int, len(to.Shape))}, -1)
		}
		add(sliceOf(Whole(out.Shape), i.Axis, i.Before, end), v, 0)
	case Concat:
		at := 0
		for k := range in {
			v := ViewOf(in, views, k)
			add(sliceOf(Whole(out.Shape), i.Axis, at, at+v.Shape[i.Axis]), v, k)
			at += v.Shape[i.Axis]
		}
	default:
		from := readBy(i, v)
		add(Whole(from.Shape), from, 0)
	}
	return slices.Clip(moves)
}

// ViewOf is how operand k is read: by its view, or whole where there is none.
func ViewOf(in []Type, views []*View, k int) *View {
	if k < len(views) && views[k] != nil {
		return views[k]
	}
	return Whole(in[k].Shape)
}

// readBy is the view by which a move reads the one operand that it sees as v.
func readBy(i Instr, v *View) *View {
	switch i := i.(type) {
	case BroadcastTo:
		return &View{i.Shape, v.Offset, stride.Stretch(v.Strides, v.Shape, i.Shape)}
	case Transpose:
		t := &View{make(device.Shape, len(v.Shape)), v.Offset, make([]int, len(v.Shape))}
		for k, axis := range i.Perm {
			t.Shape[k], t.Strides[k] = v.Shape[axis], v.Strides[axis]
		}
		return t
	case Slice:
		return sliceOf(v, i.Axis, i.Start, i.Stop)
	}
	return v // Reshape keeps the order
}

// sliceOf is a view of [start, stop) of an axis.
func sliceOf(v *View, axis, start, stop int) *View {
	return &View{withExtent(v.Shape, axis, stop-start), v.Offset + start*v.Strides[axis], v.Strides}
}
