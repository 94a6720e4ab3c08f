package cpu

import (
	"sync"

	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// Moves look at bytes only, so that every bit survives.

// move is a part of a result, and how it is copied.
type move struct {
	copying
	in    int // which operand; −1: zeros
	grain int // units that are worth a thread of their own
}

// moveBytes is how many bytes one thread moves at least.
const moveBytes = 1 << 20

// moveBody makes the copies that [Moves] lists.
func moveBody(i kernels.Instr, in []kernels.Type, out kernels.Type) parallel.Body {
	if out.Shape.Elems() == 0 {
		return func(outs, ins [][]byte) error { return nil }
	}
	moves, zero := planMoves(i, in, out), make([]byte, 8)
	idle := &sync.Pool{New: func() any { return new(moveRun) }}
	return func(outs, ins [][]byte) error {
		r := idle.Get().(*moveRun)
		for _, m := range moves {
			r.copying, r.to, r.from = m.copying, outs[0], zero
			if m.in >= 0 {
				r.from = ins[m.in]
			}
			parallel.For(m.parts(), m.grain, r)
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

// Piece implements [parallel.Work].
func (r *moveRun) Piece(from, to int) { r.copy(r.to, r.from, from, to) }

func planMoves(i kernels.Instr, in []kernels.Type, out kernels.Type) (moves []move) {
	for _, m := range kernels.Moves(i, in) {
		c, size := newCopying(out.Dtype.Size(), m.To, m.From), m.To.Shape.Elems()*out.Dtype.Size()
		moves = append(moves, move{c, m.In, max(1, int(int64(c.parts())*moveBytes/int64(size)))})
	}
	return moves
}
