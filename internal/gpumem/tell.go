package gpumem

import (
	"fmt"
	"slices"
)

// keptFaults is how many faults are remembered for those who ask of the whole GPU, and come late.
const keptFaults = 16

// found is a fault that was found in the record, and who was told of it. Flags are those of the
// runs that met it.
type found struct {
	err     error
	told    bool   // to somebody
	read    uint64 // the flags of runs of which somebody was told
	stepped uint64 // who depends on them, or steps
}

// stepAt is a step: the n-th run of a source, and the flags that it heeds.
type stepAt struct {
	source int
	n      uint64
	heeds  uint64
}

// mostSteps is how many steps of a value are kept apart of which nothing is known; what comes
// before them is one with the first.
const mostSteps = 4

// origin is what is known of a value: what it came of, and how it was stepped.
type origin struct {
	asks    clock  // the last runs that may have met a fault, of those that it depends on
	flags   uint64 // that these raise then
	spoiled *found // it came of this,
	by      uint64 // by these flags

	steps   []stepAt // of which nothing is known
	left    *found   // steps were left out for this,
	lacking uint64   // by these flags
}

// spoil has it come of a fault.
func (o *origin) spoil(f *found, by uint64) {
	if o.spoiled == nil {
		o.spoiled, o.by = f, by
	}
}

// faultFor is what is wrong with a value, for who asks for it, or steps it, or by it: always that
// it came of a fault, and that steps of it were left out, unless somebody was told before that the
// runs met a fault for which they were. Who only reads takes that from nobody who steps.
func (o *origin) faultFor(steps bool) error {
	if f := o.spoiled; f != nil {
		f.markTold(o.by, true)
		return f.err
	}
	f := o.left
	if f == nil || steps && f.stepped&o.lacking != 0 || !steps && f.read&o.lacking != 0 {
		return nil
	}
	f.markTold(o.lacking, steps)
	return fmt.Errorf("a step was left out, and what it would have changed is as before; go on with the next: %w", f.err)
}

// markTold notes that somebody is told who depends on runs with some flags.
func (f *found) markTold(by uint64, steps bool) {
	f.told, f.read = true, f.read|by
	if steps {
		f.stepped |= by
	}
}

// tellings decides who is told of a fault. The record tells of one, and has the flags of all runs
// that met one, of 64 that the runs have in turn. So when it is cleared all values that depend on a
// run with such a flag, of which it is not known that it met none, are spoiled, and what depends on
// them later is, too: who asks for one is always told. Steps do nothing while a flag is up of what
// they go by: so no parameter is spoiled, but all that were under way may have been left out. Like
// order it does no I/O.
//
// That a step was left out is told once to the next step of the value or by it ([GPU.Known] asks
// before a step begins), and once to whoever reads it, unless somebody was told who depends on the
// same run. While the record is cleared, nothing is submitted. Where two runs of which nothing is
// known have one flag, they are taken for one another: where there are more runs than flags, or
// more graphs of runs that may meet a fault than 48. Whoever asks of the whole GPU is told of each
// fault that nobody was told of.
type tellings struct {
	clean clock // runs that met no fault, and steps that were made, as far as is known; or that is settled
	names clock // the last runs that may have met one
	epoch int   // how often the record was cleared
	found [keptFaults]*found
}

// depend makes a value depend on another, too.
func (t *tellings) depend(o, p *origin) {
	if !t.clean.covers(&p.asks) {
		o.asks.advanceTo(&p.asks)
		o.flags |= p.flags
	}
	if p.spoiled != nil {
		o.spoil(p.spoiled, p.by)
	}
}

// asked notes the n-th run of a source, which may meet a fault, and of which a value came.
func (t *tellings) asked(o *origin, source int, n uint64, flag uint8) {
	o.asks.raise(source, n)
	o.flags |= 1 << flag
	t.names.raise(source, n)
}

// like has a value be what another is, as if it had come of that alone.
func (o *origin) like(p *origin) {
	*o = origin{asks: p.asks, flags: p.flags, spoiled: p.spoiled, by: p.by}
}

// noteStep notes that a value is stepped by the n-th run of a source, which heeds some flags. old
// is the value before, which may lie elsewhere.
func (t *tellings) noteStep(o, old *origin, heeds uint64, source int, n uint64) {
	if o != old {
		*o = *old
		o.steps = slices.Clone(old.steps)
	}
	o.steps = slices.DeleteFunc(o.steps, func(s stepAt) bool { return s.n <= t.clean[s.source] })
	if heeds == 0 {
		return
	}
	if len(o.steps) == mostSteps {
		o.steps[1].heeds |= o.steps[0].heeds
		o.steps = slices.Delete(o.steps, 0, 1)
	}
	o.steps = append(o.steps, stepAt{source, n, heeds})
}

// taint has a value be what it is when a fault was found. It says whether somebody will hear of
// it, and whether that is not of an earlier one.
func (t *tellings) taint(o *origin, f *found, raised uint64) (heard, news bool) {
	if by := o.flags & raised; by != 0 && !t.clean.covers(&o.asks) {
		heard, news = true, o.spoiled == nil
		o.spoil(f, by)
	}
	var by uint64
	for _, s := range o.steps {
		if s.n > t.clean[s.source] {
			by |= s.heeds & raised
		}
	}
	if o.steps = nil; by != 0 {
		heard, news = true, true
		o.left, o.lacking = f, by
	}
	return heard, news
}

// clear notes that a fault was found, what its error is, whose flags are up, and that the record is
// ready for the next. All that was submitted is done, up to head; values are all there are. Where
// nobody would hear of it, of none, the fault is said to be nobody's. Where all who would hear of
// an earlier one, as it was met in going on with what that had spoiled, it counts as told.
func (t *tellings) clear(err error, raised uint64, head *clock, values func(func(*origin))) (f *found, nobodys bool) {
	f = &found{err: err}
	t.epoch++
	t.found[t.epoch%keptFaults] = f
	var heard, news bool
	values(func(o *origin) {
		h, n := t.taint(o, f, raised)
		heard, news = heard || h, news || n
	})
	t.clean.advanceTo(head)
	f.told = heard && !news
	return f, !heard
}

// after is the first fault that was found after an epoch, or the first that is remembered.
func (t *tellings) after(epoch int) *found {
	return t.found[(max(epoch, t.epoch-keptFaults)+1)%keptFaults]
}

// untold is the first fault that nobody was told of; nil: none.
func (t *tellings) untold() *found {
	for e := max(t.epoch-keptFaults, 0) + 1; e <= t.epoch; e++ {
		if f := t.found[e%keptFaults]; !f.told {
			return f
		}
	}
	return nil
}
