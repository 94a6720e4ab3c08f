package kernels

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
)

// cpuRoutine runs bodies one after the other over parts of its buffers.
type cpuRoutine struct {
	sizes   []int
	written []bool
	calls   []cpuCall
	places  []Place   // of all calls: the results, then the operands
	idle    sync.Pool // of *cpuFrame
}

// cpuCall is a call whose results lie at places [at, mid) and operands at [mid, end).
type cpuCall struct {
	run          body
	at, mid, end int
	instr        Instr
}

// cpuFrame is what one run needs; it is kept for the next.
type cpuFrame struct {
	routine *cpuRoutine
	now     int      // which call runs
	mem     [][]byte // at the routine's places
	launch  func(mem [][]byte) error
	host    Frame
}

func (cpuBackend) Assemble(calls []Call, bufs []int, written []bool) (Routine, error) {
	if len(bufs) != len(written) {
		return nil, fmt.Errorf("%w: %d sizes of buffers, and %d marks of which are written", ErrOperands, len(bufs), len(written))
	}
	r := &cpuRoutine{sizes: slices.Clone(bufs), written: slices.Clone(written), calls: make([]cpuCall, len(calls))}
	for n, c := range calls {
		k, err := newCPUKernel(c.Instr, c.In)
		if err == nil {
			err = r.check(k, c.Outs, c.Ins)
		}
		if err != nil {
			return nil, &CallError{n, c.Instr, err}
		}
		at := len(r.places)
		r.places = append(append(r.places, c.Outs...), c.Ins...)
		r.calls[n] = cpuCall{k.run, at, at + len(c.Outs), len(r.places), c.Instr}
	}
	r.idle.New = func() any {
		f := &cpuFrame{routine: r, mem: make([][]byte, len(r.places))}
		f.launch = f.run
		return f
	}
	return r, nil
}

// check refuses places that do not fit a kernel's types or the buffers, and sharing that the instruction does not allow.
func (r *cpuRoutine) check(k *cpuKernel, outs, ins []Place) error {
	if len(outs) != len(k.out) || len(ins) != len(k.in) {
		return k.refuse("expected %d results and %d operands, got places for %d and %d", len(k.out), len(k.in), len(outs), len(ins))
	}
	for m, p := range ins {
		if err := r.holds(k, "operand", m, p, k.in[m]); err != nil {
			return err
		}
	}
	for n, p := range outs {
		if err := r.holds(k, "result", n, p, k.out[n]); err != nil {
			return err
		}
		if !r.written[p.Buf] {
			return k.refuse("result %d lies in buffer %d, which is only read", n, p.Buf)
		}
		if slices.ContainsFunc(outs[:n], p.overlaps) {
			return k.refuse("result %d overlaps another result", n)
		}
		for m, q := range ins {
			if p.overlaps(q) && !(p == q && overwrites(k.instr, k.in, k.out, n, m)) {
				return k.refuse("result %d must not overlap operand %d", n, m)
			}
		}
	}
	return nil
}

// holds checks one place.
func (r *cpuRoutine) holds(k *cpuKernel, what string, n int, p Place, t Type) error {
	switch {
	case p.Buf < 0 || p.Buf >= len(r.sizes):
		return k.refuse("%s %d lies in buffer %d of %d", what, n, p.Buf, len(r.sizes))
	case p.Len != t.Bytes():
		return k.refuse("%s %d has %d bytes; %v has %d", what, n, p.Len, t, t.Bytes())
	case p.Off < 0 || p.Off > r.sizes[p.Buf]-p.Len:
		return k.refuse("%s %d lies at %d, beyond the %d bytes of buffer %d", what, n, p.Off, r.sizes[p.Buf], p.Buf)
	case p.Off%PlaceAlign != 0:
		return k.refuse("%s %d lies at %d, which is not aligned to %d", what, n, p.Off, PlaceAlign)
	}
	return nil
}

func (r *cpuRoutine) Run(bufs []*device.Buffer) error {
	if err := r.fits(bufs); err != nil || len(r.calls) == 0 {
		return err
	}
	l, ok := bufs[0].Device().(device.Launcher)
	if !ok {
		return fmt.Errorf("%w: a routine was prepared for the CPU and cannot run on device %v", ErrNoBackend, bufs[0].Device().ID())
	}
	f := r.idle.Get().(*cpuFrame)
	err := l.Launch(bufs, f.launch)
	clear(f.mem)
	r.idle.Put(f)
	return err
}

// fits checks the buffers of a run against what the routine was told.
func (r *cpuRoutine) fits(bufs []*device.Buffer) error {
	if len(bufs) != len(r.sizes) {
		return fmt.Errorf("%w: the routine has %d buffers, got %d", ErrOperands, len(r.sizes), len(bufs))
	}
	for k, b := range bufs {
		switch {
		case b == nil:
			return fmt.Errorf("%w: buffer %d of the routine is nil", ErrOperands, k)
		case b.Len() != r.sizes[k]:
			return fmt.Errorf("%w: buffer %d of the routine has %d bytes, expected %d", ErrOperands, k, b.Len(), r.sizes[k])
		case !r.written[k]:
		case b.ReadOnly():
			return fmt.Errorf("buffer %d of the routine: %w", k, device.ErrReadOnly)
		case slices.Contains(bufs[:k], b) || slices.Contains(bufs[k+1:], b):
			return fmt.Errorf("%w: buffer %d of the routine, which is written, is given twice", ErrOperands, k)
		}
	}
	return nil
}

// run runs all calls. A panic, which would be a mistake in a body, becomes that call's error.
func (f *cpuFrame) run(mem [][]byte) (err error) {
	r := f.routine
	defer func() {
		if p := recover(); p != nil {
			err = r.failed(f.now, fmt.Errorf("panic: %v", p))
		}
	}()
	for k, p := range r.places {
		f.mem[k] = mem[p.Buf][p.Off : p.Off+p.Len : p.Off+p.Len]
	}
	for k := range r.calls {
		c := &r.calls[k]
		f.now = k
		if err := c.run(f.mem[c.at:c.mid:c.mid], f.mem[c.mid:c.end:c.end]); err != nil {
			return r.failed(k, err)
		}
	}
	return nil
}

func (r *cpuRoutine) failed(k int, err error) error {
	i := r.calls[k].instr
	return &CallError{k, i, named(i, err)}
}
