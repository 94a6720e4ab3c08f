package gpus

import (
	"context"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/internal/turns"
	"github.com/weft-project/weft/device"
)

// oneShot is up to how many bytes each member reads all of all members; of more each adds up a
// piece, and reads those of the others.
const oneShot = 512 << 10

// pieceUnit is what pieces are multiples of, in bytes.
const pieceUnit = 256

// Name is [collective.Way]'s.
func (w *window) Name() string { return "CUDA IPC" }

// Takes is [collective.Way]'s.
func (w *window) Takes(_ collective.Op, _ device.Dtype, bufs []*device.Buffer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended == nil && w.d.has(bufs)
}

// Reduce is [collective.Way]'s. What fails once it is served leaves members at different halves: so
// it ends the window.
func (w *window) Reduce(c context.Context, in *collective.Compound, op collective.Op, d device.Dtype, bufs []*device.Buffer) error {
	if err := w.admit(); err != nil {
		return err
	}
	defer w.busy.Done()
	k := turns.Key{Group: in.Key()}
	times, err := collective.Agree(in.Part(c), w.g, w.queue.lineUp(k))
	if err != nil {
		w.queue.stepOut(k) // where another member's is not out, it fails there, and ends the window
		return err
	}
	j := &job{done: make(chan struct{}), do: func() error {
		if err := w.admit(); err != nil { // one before has failed
			return err
		}
		defer w.busy.Done()
		err := w.reduce(c, in, op, d, bufs)
		if err != nil {
			w.expire(err)
		}
		return err
	}}
	w.queue.settle(k, times, j)
	<-j.done
	return j.err
}

// reduce makes the results beside the buffers, a half of the window at a time, and copies them in
// when all are there.
func (w *window) reduce(c context.Context, in *collective.Compound, op collective.Op, d device.Dtype, bufs []*device.Buffer) error {
	bytes := 0
	for _, b := range bufs {
		bytes += b.Len()
	}
	out, err := w.d.acc.Borrow(bytes)
	if err != nil {
		return err
	}
	defer out.Return()
	for lo := 0; lo < bytes; lo += w.half {
		f := folding{window: w, op: op, d: d, n: min(w.half, bytes-lo), out: out.Addr() + uintptr(lo), off: windowHead + uintptr(w.used%2)*uintptr(w.half)}
		w.used++
		if err := f.reduceHalf(c, in, bufs, lo); err != nil {
			return err
		}
	}
	return spread(w.mem, bufs, out.Addr())
}

// folding is n bytes that are reduced by halves of all windows, off bytes from their beginnings.
//
// A half is written again when all members have said of the other one that it is written: they say
// so when their GPUs have read this one.
type folding struct {
	*window
	op  collective.Op
	d   device.Dtype
	n   int
	out uintptr // where the result goes
	off uintptr
}

// reduceHalf puts bytes of buffers from lo on, one buffer behind the other, into the own window,
// and reads all windows.
func (f folding) reduceHalf(c context.Context, in *collective.Compound, bufs []*device.Buffer, lo int) error {
	mine, at := f.at[f.g.Rank()]+f.off, 0
	for _, b := range bufs {
		from, to := max(lo-at, 0), min(lo+f.n-at, b.Len())
		if from < to {
			if err := f.mem.Pass(mine+uintptr(at+from-lo), b.Addr()+uintptr(from), to-from); err != nil {
				return err
			}
		}
		at += b.Len()
	}
	if err := f.together(c, in); err != nil {
		return err
	}
	if f.n <= f.oneShot {
		return f.fold(f.out, 0, f.n)
	}
	return f.twice(c, in, mine)
}

// twice has each member fold its piece where it lies in its own window, and read the others'.
func (f folding) twice(c context.Context, in *collective.Compound, mine uintptr) error {
	lo, hi := f.piece(f.g.Rank())
	if err := f.fold(mine+uintptr(lo), lo, hi); err != nil {
		return err
	}
	if err := f.together(c, in); err != nil {
		return err
	}
	for r, at := range f.at {
		if lo, hi = f.piece(r); lo < hi {
			if err := f.mem.Move(f.out+uintptr(lo), at+f.off+uintptr(lo), hi-lo); err != nil {
				return err
			}
		}
	}
	return nil
}

// piece is what a member folds.
func (f folding) piece(rank int) (lo, hi int) {
	each := (f.n + len(f.at) - 1) / len(f.at)
	each = (each + pieceUnit - 1) / pieceUnit * pieceUnit
	return min(rank*each, f.n), min((rank+1)*each, f.n)
}

// fold reduces what lies between lo and hi in all windows.
func (f folding) fold(to uintptr, lo, hi int) error {
	from := make([]uintptr, len(f.at))
	for r, at := range f.at {
		from[r] = at + f.off + uintptr(lo)
	}
	fn, factor := f.op.Code()
	return f.mem.Fold(fn, factor, f.d, (hi-lo)/f.d.Size(), to, from...)
}

// together waits until all members' windows are written, and what they have read of windows is
// read.
func (f folding) together(c context.Context, in *collective.Compound) error {
	if err := f.wait(f.at...); err != nil {
		return err
	}
	_, err := collective.Agree(in.Part(c), f.g, struct{}{})
	return err
}
