package parallel

import "sync"

// Body is an instruction made ready: it computes results from operands, whose sizes have been
// checked.
type Body func(outs, ins [][]byte) error

// Grain is about how many elements are worth a piece of their own.
const Grain = 1 << 14

// Rows makes a body of a function that computes rows [from, to), of n rows of extent d.
func Rows(n, d int, run func(outs, ins [][]byte, from, to int)) Body {
	var idle sync.Pool // of *rowWork
	grain := max(1, Grain/max(d, 1))
	return func(outs, ins [][]byte) error {
		w, _ := idle.Get().(*rowWork)
		if w == nil {
			w = &rowWork{run: run}
		}
		w.outs, w.ins = outs, ins
		For(n, grain, w)
		w.outs, w.ins = nil, nil
		idle.Put(w)
		return nil
	}
}

// rowWork is one run.
type rowWork struct {
	run       func(outs, ins [][]byte, from, to int)
	outs, ins [][]byte
}

func (w *rowWork) Piece(from, to int) { w.run(w.outs, w.ins, from, to) }
