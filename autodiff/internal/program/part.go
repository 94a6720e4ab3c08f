package program

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// part is calls that run at once. Before them some buffers are taken, and after them others given
// back.
type part struct {
	routine kernels.Routine
	from    int   // its first call
	bufs    []int // of the plan, in the routine's order
	take    []int // allocated before
	drop    []int // inputs and temporaries that no later part needs
}

// starts are the first calls of a plan's parts: one begins where a large buffer begins, and after
// one has ended. So large buffers are there only while they are needed, and all else of the program
// runs as one.
func (p *plan) starts(large int) (first []int) {
	begins := make([]bool, len(p.calls)+1)
	for k, l := range p.lives {
		if p.bufs[k] >= large && l.last >= 0 {
			begins[l.first] = begins[l.first] || k >= p.inputs
			begins[l.last+1] = true
		}
	}
	for k := range p.calls {
		if k == 0 || begins[k] {
			first = append(first, k)
		}
	}
	return first
}

// cut makes the parts of a plan.
func cut(p *plan, b kernels.Backend) ([]part, error) {
	parts := make([]part, len(p.first))
	for n, from := range p.first {
		to := len(p.calls)
		if n+1 < len(p.first) {
			to = p.first[n+1]
		}
		one, err := p.part(b, p.calls[from:to])
		if err != nil {
			return nil, err
		}
		parts[n], parts[n].from = one, from
	}
	for k := range p.lives {
		if len(parts) == 0 {
			break
		}
		first, last := p.parts(k)
		if k >= p.inputs {
			parts[first].take = append(parts[first].take, k)
		}
		if !slices.Contains(p.results, k) {
			parts[last].drop = append(parts[last].drop, k)
		}
	}
	return parts, nil
}

// parts are the first and the last part in which a buffer is there. One that nobody reads ends at
// once.
func (p *plan) parts(buf int) (first, last int) {
	at := func(call int) int {
		n, found := slices.BinarySearch(p.first, call)
		if !found {
			n--
		}
		return n
	}
	l := p.lives[buf]
	return at(min(l.first, len(p.calls)-1)), at(max(l.last, 0))
}

// part prepares calls. Those of a plan's only part see its buffers as they are, others those that
// they use.
func (p *plan) part(b kernels.Backend, calls []kernels.Call) (part, error) {
	if len(calls) == len(p.calls) {
		r, err := b.Assemble(calls, p.bufs, p.written)
		return part{routine: r, bufs: upTo(len(p.bufs))}, err
	}
	var one part
	at := map[int]int{} // buffer of the plan to buffer of the routine
	var bytes []int
	var written []bool
	local := func(places []kernels.Place) []kernels.Place {
		places = slices.Clone(places)
		for n := range places {
			k := places[n].Buf
			if _, have := at[k]; !have {
				at[k] = len(one.bufs)
				one.bufs, bytes, written = append(one.bufs, k), append(bytes, p.bufs[k]), append(written, p.written[k])
			}
			places[n].Buf = at[k]
		}
		return places
	}
	calls = slices.Clone(calls)
	for n := range calls {
		calls[n].Outs, calls[n].Ins = local(calls[n].Outs), local(calls[n].Ins)
	}
	var err error
	one.routine, err = b.Assemble(calls, bytes, written)
	return one, err
}

func upTo(n int) []int {
	all := make([]int, n)
	for k := range all {
		all[k] = k
	}
	return all
}

// running is the memory of a run.
type running struct {
	bufs  []*device.Buffer // of the plan
	these []*device.Buffer // of a part
}

// compute takes, computes and drops. Of the inputs it gives back the first few, which are its own.
func (o *part) compute(dev device.Device, p *plan, r *running, own int) (err error) {
	if err := o.allocate(dev, p, r); err != nil {
		return err
	}
	r.these = r.these[:0]
	for _, k := range o.bufs {
		r.these = append(r.these, r.bufs[k])
	}
	if err := o.routine.Run(r.these); err != nil {
		return err
	}
	for _, k := range o.drop {
		if k < own || k >= p.inputs {
			_ = r.bufs[k].Release() // the run's reference
			r.bufs[k] = nil
		}
	}
	return nil
}

// allocate takes what begins here. On an accelerator that is rather no memory with which another
// program's work is still under way: it would stand behind that.
func (o *part) allocate(dev device.Device, p *plan, r *running) (err error) {
	acc, _ := dev.(*device.Accelerator)
	var hint any
	if h, ok := o.routine.(device.Hinter); ok && acc != nil && len(o.take) > 0 {
		r.these = r.these[:0]
		for _, k := range o.bufs {
			r.these = append(r.these, r.bufs[k]) // nil, where it is to be taken
		}
		hint = h.Hint(r.these)
	}
	for _, k := range o.take {
		if acc != nil {
			r.bufs[k], err = acc.AllocFor(p.bufs[k], hint)
		} else {
			r.bufs[k], err = dev.Alloc(p.bufs[k])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
