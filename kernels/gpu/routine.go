package gpu

import (
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// kernel is one instruction, made ready.
type kernel struct {
	kernels.Signature
	*sequence
	idle sync.Pool // of *[]*device.Buffer
}

// Prepare is [kernels.Backend]'s.
func (b *backend) Prepare(i kernels.Instr, in []kernels.Type) (kernels.Kernel, error) {
	if err := b.enter("prepare"); err != nil {
		return nil, err
	}
	defer b.inside.Leave()
	var s kernels.Signature
	var c *code
	run, err := b.sequence(func(q *builder) (err error) {
		if s, c, err = b.ready(i, in); err != nil {
			return err
		}
		outs, ins := make([]spot, len(s.Out)), make([]spot, len(s.In))
		for n := range outs {
			outs[n] = spot{buf: n, n: s.Out[n].Bytes()}
		}
		for m := range ins {
			ins[m] = spot{buf: len(outs) + m, n: s.In[m].Bytes()}
		}
		q.appendCode(c, outs, ins, b.faultOf(c, i, s.In, -1))
		return nil
	})
	switch {
	case err != nil && c != nil: // its launches are made, and do not load
		return nil, fmt.Errorf("%v: %w", i, err)
	case err != nil:
		return nil, err
	}
	return &kernel{Signature: s, sequence: run}, nil
}

// ready checks an instruction and makes its launches.
func (b *backend) ready(i kernels.Instr, in []kernels.Type) (kernels.Signature, *code, error) {
	s, err := kernels.Sign(i, in)
	if err != nil {
		return s, nil, err
	}
	c, err := b.lower(i, s.In, s.Out)
	if err != nil {
		return s, nil, fmt.Errorf("%v: %w", i, err)
	}
	return s, c, nil
}

// faultOf is what an instruction reports under; 0 for one that does not.
func (b *backend) faultOf(c *code, i kernels.Instr, in []kernels.Type, at int) uint64 {
	if !c.faults() {
		return 0
	}
	return b.faults.code(i, in, at)
}

// Run is [kernels.Kernel]'s.
func (k *kernel) Run(outs, ins []*device.Buffer) error {
	if err := k.Check(outs, ins); err != nil {
		return err
	}
	bufs, _ := k.idle.Get().(*[]*device.Buffer)
	if bufs == nil {
		bufs = new([]*device.Buffer)
	}
	*bufs = append(append((*bufs)[:0], outs...), ins...)
	err := k.run(*bufs)
	clear(*bufs)
	k.idle.Put(bufs)
	if err != nil {
		return fmt.Errorf("%v: %w", k.Instr, err)
	}
	return nil
}

// routine is many instructions, submitted at once.
type routine struct {
	kernels.Layout
	*sequence
}

// Assemble is [kernels.Backend]'s.
func (b *backend) Assemble(calls []kernels.Call, bufs []int, written []bool) (kernels.Routine, error) {
	if err := b.enter("prepare"); err != nil {
		return nil, err
	}
	defer b.inside.Leave()
	l, err := kernels.NewLayout(bufs, written)
	if err != nil {
		return nil, err
	}
	run, err := b.sequence(func(q *builder) error {
		for n, call := range calls {
			outs, ins := spots(call.Outs), spots(call.Ins)
			s, c, err := b.ready(call.Instr, call.In)
			if err == nil {
				err = l.Places(&s, call.Outs, call.Ins)
			}
			if err != nil {
				return &kernels.CallError{At: n, Instr: call.Instr, Err: err}
			}
			q.appendCode(c, outs, ins, b.faultOf(c, call.Instr, s.In, n))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &routine{l, run}, nil
}

func spots(places []kernels.Place) []spot {
	s := make([]spot, len(places))
	for k, p := range places {
		s[k] = spot{p.Buf, p.Off, p.Len}
	}
	return s
}

// Run is [kernels.Routine]'s.
func (r *routine) Run(bufs []*device.Buffer) error {
	if err := r.Check(bufs); err != nil {
		return err
	}
	return r.run(bufs)
}

var _ kernels.Scratcher = (*routine)(nil)

// Scratch is [kernels.Scratcher]'s.
func (r *routine) Scratch() int { return r.scratch }

var _ device.Hinter = (*routine)(nil)

// Hint is [device.Hinter]'s.
func (r *routine) Hint(bufs []*device.Buffer) any { return r.backend.gpu.Where(&r.use, bufs) }
