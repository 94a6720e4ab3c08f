package kernels

import (
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/stride"
)

// Moves look at bytes only, so that every bit survives.

// Move is a part of what an instruction that moves makes: a copy of an operand, or zeros. Both views have one shape.
type Move struct {
	In       int // which operand; −1: zeros
	To, From *View
}

// Moves are the copies that BroadcastTo, Reshape, Transpose, Slice, Pad, Concat, or one of them Viewed, is made of; none for another
// instruction. Infer accepts the operands.
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

// move is a part of a result, and how it is copied.
type move struct {
	copying
	in    int // which operand; −1: zeros
	grain int // units that are worth a thread of their own
}

// moveBytes is how many bytes one thread moves at least.
const moveBytes = 1 << 20

// moveBody moves operands that are read by views, nil for those that are contiguous.
func moveBody(i Instr, in []Type, views []*View, out Type) body {
	if out.Shape.Elems() == 0 {
		return func(outs, ins [][]byte) error { return nil }
	}
	moves, zero := planMoves(i, in, views, out), make([]byte, 8)
	idle := &sync.Pool{New: func() any { return new(moveRun) }}
	return func(outs, ins [][]byte) error {
		r := idle.Get().(*moveRun)
		for _, m := range moves {
			r.copying, r.to, r.from = m.copying, outs[0], zero
			if m.in >= 0 {
				r.from = ins[m.in]
			}
			spread(m.parts(), m.grain, r)
		}
		*r = moveRun{}
		idle.Put(r)
		return nil
	}
}

// moveRun is one run of a move.
type moveRun struct {
	copying
	to, from []byte
}

// piece implements [pieces].
func (r *moveRun) piece(from, to int) { r.copy(r.to, r.from, from, to) }

func planMoves(i Instr, in []Type, views []*View, out Type) (moves []move) {
	for _, m := range movesOf(i, in, views, out) {
		c, size := newCopying(out.Dtype.Size(), m.To, m.From), m.To.Shape.Elems()*out.Dtype.Size()
		moves = append(moves, move{c, m.In, max(1, int(int64(c.parts())*moveBytes/int64(size)))})
	}
	return moves
}

// movesOf is Moves with the views beside the instruction.
func movesOf(i Instr, in []Type, views []*View, out Type) (moves []Move) {
	add := func(to, from *View, in int) {
		if to.Shape.Elems() > 0 {
			moves = append(moves, Move{in, to, from})
		}
	}
	v := viewOf(in, views, 0)
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
			v := viewOf(in, views, k)
			add(sliceOf(Whole(out.Shape), i.Axis, at, at+v.Shape[i.Axis]), v, k)
			at += v.Shape[i.Axis]
		}
	default:
		from := readBy(i, v)
		add(Whole(from.Shape), from, 0)
	}
	return slices.Clip(moves)
}

// viewOf is how operand k is read.
func viewOf(in []Type, views []*View, k int) *View {
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
