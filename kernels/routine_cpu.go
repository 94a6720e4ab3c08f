package kernels

import (
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
)

// cpuRoutine runs bodies one after the other over parts of its buffers.
type cpuRoutine struct {
	Layout
	calls  []cpuCall
	places []Place   // of all calls: the results, then the operands
	idle   sync.Pool // of *cpuFrame
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
	host    Frame // of a run on the host's memory
}

func (cpuBackend) Assemble(calls []Call, bufs []int, written []bool) (Routine, error) {
	l, err := NewLayout(bufs, written)
	if err != nil {
		return nil, err
	}
	r := &cpuRoutine{Layout: l, calls: make([]cpuCall, len(calls))}
	for n, c := range calls {
		k, err := newCPUKernel(c.Instr, c.In)
		if err == nil {
			err = r.Places(&k.Signature, c.Outs, c.Ins)
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

func (r *cpuRoutine) Run(bufs []*device.Buffer) error {
	if err := r.Check(bufs); err != nil || len(r.calls) == 0 {
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
