package cpu

import (
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// routine runs bodies one after the other over parts of its buffers.
type routine struct {
	kernels.Layout
	calls  []call
	places []kernels.Place // of all calls: the results, then the operands
	idle   sync.Pool       // of *frame
}

// call is a call whose results lie at places [at, mid) and operands at [mid, end).
type call struct {
	run          parallel.Body
	at, mid, end int
	instr        kernels.Instr
}

// frame is what one run needs; it is kept for the next.
type frame struct {
	routine *routine
	now     int      // which call runs
	mem     [][]byte // at the routine's places
	launch  func(mem [][]byte) error
	host    kernels.Frame // of a run on the host's memory
}

// Assemble is [kernels.Backend]'s.
func (Backend) Assemble(calls []kernels.Call, bufs []int, written []bool) (kernels.Routine, error) {
	l, err := kernels.NewLayout(bufs, written)
	if err != nil {
		return nil, err
	}
	r := &routine{Layout: l, calls: make([]call, len(calls))}
	for n, c := range calls {
		k, err := newKernel(c.Instr, c.In)
		if err == nil {
			err = r.Places(&k.Signature, c.Outs, c.Ins)
		}
		if err != nil {
			return nil, &kernels.CallError{At: n, Instr: c.Instr, Err: err}
		}
		at := len(r.places)
		r.places = append(append(r.places, c.Outs...), c.Ins...)
		r.calls[n] = call{k.run, at, at + len(c.Outs), len(r.places), c.Instr}
	}
	r.idle.New = func() any {
		f := &frame{routine: r, mem: make([][]byte, len(r.places))}
		f.launch, f.host.Of = f.run, hostRun{f}
		return f
	}
	return r, nil
}

func (r *routine) Run(bufs []*device.Buffer) error {
	if err := r.Check(bufs); err != nil || len(r.calls) == 0 {
		return err
	}
	l, ok := bufs[0].Device().(device.Launcher)
	if !ok {
		return fmt.Errorf("%w: a routine was prepared for the CPU and cannot run on device %v", kernels.ErrNoBackend, bufs[0].Device().ID())
	}
	f := r.idle.Get().(*frame)
	err := l.Launch(bufs, f.launch)
	clear(f.mem)
	r.idle.Put(f)
	return err
}

// run runs all calls. A panic, which would be a mistake in a body, becomes that call's error.
func (f *frame) run(mem [][]byte) (err error) {
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

func (r *routine) failed(k int, err error) error {
	i := r.calls[k].instr
	return &kernels.CallError{At: k, Instr: i, Err: named(i, err)}
}

// Begin is [kernels.HostRoutine]'s.
func (r *routine) Begin() *kernels.Frame {
	return &r.idle.Get().(*frame).host
}

// hostRun is one run on the host's memory.
type hostRun struct{ f *frame }

func (h hostRun) Run(mem [][]byte) error {
	err := h.f.run(mem)
	clear(h.f.mem)
	return err
}

func (h hostRun) End() { h.f.routine.idle.Put(h.f) }
