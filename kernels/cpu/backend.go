package cpu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// Backend is a [kernels.Backend]: it runs instructions as Go code on every device that launches Go
// code.
type Backend struct{}

// Name is "cpu".
func (Backend) Name() string { return "cpu" }

// Prepare is [kernels.Backend]'s.
func (Backend) Prepare(i kernels.Instr, in []kernels.Type) (kernels.Kernel, error) {
	k, err := newKernel(i, in)
	if err != nil {
		return nil, err
	}
	n := len(k.Out)
	k.launch = func(mem [][]byte) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p) // a mistake in a body; see also frame.run
			}
		}()
		return k.run(mem[:n], mem[n:])
	}
	return k, nil
}

func newKernel(i kernels.Instr, in []kernels.Type) (*kernel, error) {
	s, err := kernels.Sign(i, in)
	if err != nil {
		return nil, err
	}
	run, err := compile(i, s.In, s.Out)
	if err != nil {
		return nil, err
	}
	return &kernel{Signature: s, run: run}, nil
}

// kernel checks buffers and hands their memory to a body.
type kernel struct {
	kernels.Signature
	run    parallel.Body
	launch func(mem [][]byte) error
	idle   sync.Pool // of *[]*device.Buffer, for Run
}

func (k *kernel) Run(outs, ins []*device.Buffer) error {
	if err := k.Check(outs, ins); err != nil {
		return err
	}
	l, ok := outs[0].Device().(device.Launcher)
	if !ok {
		return fmt.Errorf("%w: %v was prepared for the CPU and cannot run on device %v", kernels.ErrNoBackend, k.Instr, outs[0].Device().ID())
	}
	bufs, _ := k.idle.Get().(*[]*device.Buffer)
	if bufs == nil {
		bufs = new([]*device.Buffer)
	}
	*bufs = append(append((*bufs)[:0], outs...), ins...)
	err := l.Launch(*bufs, k.launch)
	clear(*bufs)
	k.idle.Put(bufs)
	return named(k.Instr, err)
}

// named puts the instruction before an error; an [IndexError] names it itself.
func named(i kernels.Instr, err error) error {
	if err == nil {
		return nil // before there is an index on the heap
	}
	if index := (*kernels.IndexError)(nil); errors.As(err, &index) {
		return err
	}
	return fmt.Errorf("%v: %w", i, err)
}
