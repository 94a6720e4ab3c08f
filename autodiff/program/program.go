package program

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Program is a unit that can run: one routine over the buffers of the inputs, those of the results, and one arena for everything between.
type Program struct {
	name    string
	unit    *Unit // optimized; read-only
	plan    *plan
	routine kernels.Routine // nil where there is nothing to compute
	types   []kernels.Type  // of the results
	idle    sync.Pool       // of *[]*device.Buffer
}

// Compile optimizes a unit, which it takes over, and plans it for a backend.
func Compile(u *Unit, b kernels.Backend) (*Program, error) {
	Optimize(u)
	return assemble(u, b)
}

// assemble is Compile of a unit as it is.
func assemble(u *Unit, b kernels.Backend) (*Program, error) {
	p := &Program{name: u.Name, unit: u, plan: lay(u), types: u.typesOf(u.Results)}
	if len(p.plan.calls) == 0 {
		return p, nil
	}
	var err error
	p.routine, err = b.Assemble(p.plan.calls, p.plan.bufs, p.plan.written)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Name, err)
	}
	return p, nil
}

// Types are the types of the results. They must not be changed.
func (p *Program) Types() []kernels.Type { return p.types }

// Arena is how many bytes a run needs between its inputs and its results.
func (p *Program) Arena() int { return p.plan.arena }

// Run computes the results from the inputs into out, which has a place for each. The inputs stay the caller's; each result carries a
// reference for the caller, also where it is an input or appears twice. On an error there are no results.
func (p *Program) Run(dev device.Device, in, out []*device.Buffer) error {
	bufs, _ := p.idle.Get().(*[]*device.Buffer)
	if bufs == nil {
		space := make([]*device.Buffer, len(p.plan.bufs))
		bufs = &space
	}
	err := p.run(dev, in, *bufs)
	if err == nil {
		for k, at := range p.plan.results {
			out[k] = (*bufs)[at].Retain()
		}
	}
	for _, b := range (*bufs)[len(in):] {
		if b != nil {
			_ = b.Release() // the reference from Alloc
		}
	}
	clear(*bufs)
	p.idle.Put(bufs)
	return err
}

// run fills the places of bufs: inputs, results, arena.
func (p *Program) run(dev device.Device, in, bufs []*device.Buffer) (err error) {
	copy(bufs, in)
	for k := len(in); k < len(bufs); k++ {
		if bufs[k], err = dev.Alloc(p.plan.bufs[k]); err != nil {
			return err
		}
	}
	if p.routine == nil {
		return nil
	}
	if err := p.routine.Run(bufs); err != nil {
		return p.failed(err)
	}
	return nil
}

// failed says in which program and instruction a run failed. A single instruction is the function itself, which needs no words.
func (p *Program) failed(err error) error {
	var at *kernels.CallError
	if !errors.As(err, &at) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if len(p.plan.calls) == 1 {
		return at.Err
	}
	return fmt.Errorf("%s, instruction %d (%v): %w", p.name, at.At, at.Instr, at.Err)
}

// Unit is what the program computes, optimized. It must not be changed.
func (p *Program) Unit() *Unit { return p.unit }
