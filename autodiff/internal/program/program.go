package program

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Program is a unit that can run, mostly as one routine over the buffers of the inputs, those of
// the results, and one arena for everything between.
type Program struct {
	unit  *Unit // optimized; read-only
	plan  *plan
	parts []part         // none where there is nothing to compute
	types []kernels.Type // of the results
	noter kernels.Noter  // the backend, where it is one
	idle  sync.Pool      // of *running
}

// Compile optimizes a unit, which it takes over, and plans it for a backend.
func Compile(u *Unit, b kernels.Backend) (*Program, error) {
	optimizeFor(u, b)
	return assemble(u, b, largeFor(b))
}

// optimizeFor optimizes a unit for a backend.
func optimizeFor(u *Unit, b kernels.Backend) {
	Optimize(u)
	if n, ok := b.(kernels.Narrower); ok && n.Narrows() {
		narrow(u)
	}
}

// assemble is Compile of a unit as it is.
func assemble(u *Unit, b kernels.Backend, large int) (*Program, error) {
	p := &Program{unit: u, plan: lay(u, large), types: u.typesOf(u.Results)}
	p.noter, _ = b.(kernels.Noter)
	var err error
	if p.parts, err = cut(p.plan, b); err != nil {
		return nil, fmt.Errorf("%s: %w", u.Name, err)
	}
	return p, nil
}

// Types are the types of the results. They must not be changed.
func (p *Program) Types() []kernels.Type { return p.types }

// Run computes the results from the inputs into out, which has a place for each. The inputs stay
// the caller's; each result carries a reference for the caller, also where it is an input or
// appears twice. On an error there are no results.
func (p *Program) Run(dev device.Device, in, out []*device.Buffer) error {
	return p.Spend(dev, in, out, 0)
}

// Spend is Run that takes over the references of the first inputs, n of them, and gives each back
// as soon as it has been read for the last time, also on an error. Their places in the slice are
// nil afterwards.
func (p *Program) Spend(dev device.Device, in, out []*device.Buffer, n int) error {
	r, _ := p.idle.Get().(*running)
	if r == nil {
		r = &running{bufs: make([]*device.Buffer, len(p.plan.bufs))}
	}
	copy(r.bufs, in)
	clear(in[:n])
	err := p.run(dev, r, n)
	if err == nil {
		for k, at := range p.plan.results {
			out[k] = r.bufs[at].Retain()
		}
	}
	for k, b := range r.bufs {
		if b != nil && (k < n || k >= p.plan.inputs) {
			_ = b.Release() // the run's reference
		}
	}
	clear(r.bufs)
	clear(r.these)
	p.idle.Put(r)
	return err
}

func (p *Program) run(dev device.Device, r *running, own int) error {
	for k := range p.parts {
		if err := p.parts[k].compute(dev, p.plan, r, own); err != nil {
			return p.failed(err, p.parts[k].from)
		}
	}
	return nil
}

// failed says in which instruction of the program a run failed. A single instruction is the
// function itself, which needs no words.
func (p *Program) failed(err error, from int) error {
	var at *kernels.CallError
	if !errors.As(err, &at) {
		return err
	}
	if len(p.plan.calls) == 1 {
		return at.Err
	}
	return &kernels.CallError{At: from + at.At, Instr: at.Instr, Err: at.Err}
}
