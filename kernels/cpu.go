package kernels

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
)

// cpuBackend runs instructions as Go code on every device that launches Go code.
type cpuBackend struct{}

func (cpuBackend) Name() string { return "cpu" }

// body computes results from operands; sizes have been checked.
type body func(outs, ins [][]byte) error

func (cpuBackend) Prepare(i Instr, in []Type) (Kernel, error) {
	k, err := newCPUKernel(i, in)
	if err != nil {
		return nil, err
	}
	n := len(k.out)
	k.launch = func(mem [][]byte) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p) // a mistake in a body; see also cpuFrame.run
			}
		}()
		return k.run(mem[:n], mem[n:])
	}
	return k, nil
}

func newCPUKernel(i Instr, in []Type) (*cpuKernel, error) {
	if i == nil {
		return nil, fmt.Errorf("%w: the instruction is nil", ErrOperands)
	}
	out, err := i.Infer(in)
	if err != nil {
		return nil, err
	}
	run, err := compile(i, in, out)
	if err != nil {
		return nil, err
	}
	return &cpuKernel{instr: i, in: cloneTypes(in), out: cloneTypes(out), run: run}, nil
}

func cloneTypes(ts []Type) []Type {
	c := slices.Clone(ts)
	for k := range c {
		if k > 0 && c[k].Shape.Equal(c[k-1].Shape) {
			c[k].Shape = c[k-1].Shape
		} else {
			c[k].Shape = c[k].Shape.Clone()
		}
	}
	return c
}

// cpuKernel checks buffers and hands their memory to a body.
type cpuKernel struct {
	instr   Instr
	in, out []Type
	run     body
	launch  func(mem [][]byte) error
	idle    sync.Pool // of *[]*device.Buffer, for Run
}

func (k *cpuKernel) Run(outs, ins []*device.Buffer) error {
	if err := k.check(outs, ins); err != nil {
		return err
	}
	l, ok := outs[0].Device().(device.Launcher)
	if !ok {
		return fmt.Errorf("%w: %v was prepared for the CPU and cannot run on device %v", ErrNoBackend, k.instr, outs[0].Device().ID())
	}
	bufs, _ := k.idle.Get().(*[]*device.Buffer)
	if bufs == nil {
		bufs = new([]*device.Buffer)
	}
	*bufs = append(append((*bufs)[:0], outs...), ins...)
	err := l.Launch(*bufs, k.launch)
	clear(*bufs)
	k.idle.Put(bufs)
	return named(k.instr, err)
}

// named puts the instruction before an error; an [IndexError] names it itself.
func named(i Instr, err error) error {
	if err == nil {
		return nil // before there is an index on the heap
	}
	if index := (*IndexError)(nil); errors.As(err, &index) {
		return err
	}
	return fmt.Errorf("%v: %w", i, err)
}

// check refuses a wrong number or size of buffers, and sharing that the instruction does not allow.
func (k *cpuKernel) check(outs, ins []*device.Buffer) error {
	if len(outs) != len(k.out) || len(ins) != len(k.in) {
		return k.refuse("expected %d results and %d operands, got %d and %d", len(k.out), len(k.in), len(outs), len(ins))
	}
	for n, b := range ins {
		if err := k.fits("operand", n, b, k.in[n]); err != nil {
			return err
		}
	}
	for n, b := range outs {
		if err := k.fits("result", n, b, k.out[n]); err != nil {
			return err
		}
		if slices.Contains(outs[:n], b) {
			return k.refuse("result %d is the buffer of another result", n)
		}
		if b.ReadOnly() {
			return fmt.Errorf("%v: result %d: %w", k.instr, n, device.ErrReadOnly)
		}
		for m, a := range ins {
			if a == b && !overwrites(k.instr, k.in, k.out, n, m) {
				return k.refuse("result %d must not be the buffer of operand %d", n, m)
			}
		}
	}
	return nil
}

func (k *cpuKernel) fits(what string, n int, b *device.Buffer, t Type) error {
	if b == nil {
		return k.refuse("%s %d is nil", what, n)
	}
	if b.Len() != t.Bytes() {
		return k.refuse("%s %d has %d bytes; %v has %d", what, n, b.Len(), t, t.Bytes())
	}
	return nil
}

func (k *cpuKernel) refuse(format string, args ...any) error {
	return refuse(k.instr, k.in, format, args...)
}
