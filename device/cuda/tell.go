package cuda

// keptFaults is how many faults are remembered for those who ask of the whole GPU, and come late.
const keptFaults = 16

// found is a fault that was found in the record.
type found struct {
	err  error
	told bool // to somebody
}

// job is what depends on the parameters of some steps: on those of one model, as far as can be told from what was computed of what.
type job struct {
	with  *job  // it is one with
	steps clock // its last steps
	left  *found
}

// root is the job that stands for all which are one.
func (j *job) root() *job {
	for j != nil && j.with != nil {
		if j.with.with != nil {
			j.with = j.with.with
		}
		j = j.with
	}
	return j
}

// one makes one job of two.
func one(a, b *job) *job {
	if a = a.root(); a == b {
		return a
	}
	b = b.root()
	switch {
	case a == nil || a == b:
		return b
	case b == nil:
		return a
	}
	a.steps.join(&b.steps)
	if a.left == nil {
		a.left = b.left
	}
	b.with, b.left = a, nil
	return a
}

// origin is what is known of a value: what it came of.
type origin struct {
	asks    clock  // the last runs that may have met a fault, of those that it depends on
	job     *job   // nil: none
	spoiled *found // it came of this
}

// add has a value depend on another, too.
func (o *origin) add(p *origin) {
	j := one(o.job, p.job)
	o.part(p)
	o.job = j
}

// part has a part of a value come of another, of whose job it is then: places that many values pass through make no job of theirs.
func (o *origin) part(p *origin) {
	o.asks.join(&p.asks)
	o.job = p.job
	if o.spoiled == nil {
		o.spoiled = p.spoiled
	}
}

// tell is what is wrong with a value, for who asks of it: always that it came of a fault, and once for each job that steps were left out for one.
func (o *origin) tell() error {
	f, j := o.spoiled, o.job.root()
	if f == nil && j != nil {
		f = j.left
	}
	if f == nil {
		return nil
	}
	if j != nil && j.left == f {
		j.left = nil
	}
	f.told = true
	return f.err
}

// tellings decides who is told of a fault. The record tells of one, and not which run met it; of others that were met until it is cleared nothing is
// known. So when it is cleared all values that depend on a run which may have met one are spoiled, and what depends on them later is, too: who asks for one is
// always told. Steps do nothing while the record tells of a fault: so no parameter is spoiled, but all that were under way may have been left out. Like order it does no I/O.
type tellings struct {
	clean clock // runs that met no fault, and steps that were made, as far as is known; or that is settled
	names clock // the last runs that may have met one
	epoch int   // how often the record was cleared
	found [keptFaults]*found
}

// ran notes the n-th run of a source, of which a value came.
func (t *tellings) ran(o *origin, source int, n uint64, faults, steps bool) {
	if faults {
		o.asks.raise(source, n)
		t.names.raise(source, n)
	}
	if steps {
		if o.job = o.job.root(); o.job == nil {
			o.job = new(job)
		}
		o.job.steps.raise(source, n)
	}
}

// clear notes that a fault was found, what its error is, and that the record is ready for the next. All that was submitted is done, up to head; values are all there
// are. Where nobody would hear of it, of none, the fault is said to be nobody's.
func (t *tellings) clear(err error, head *clock, values func(func(*origin))) (f *found, nobodys bool) {
	f, nobodys = &found{err: err}, true
	t.epoch++
	t.found[t.epoch%keptFaults] = f
	values(func(o *origin) {
		if o.spoiled == nil && !t.clean.covers(&o.asks) {
			o.spoiled, nobodys = f, false
		}
		if j := o.job.root(); j != nil && !t.clean.covers(&j.steps) {
			j.left, nobodys = f, false
		}
	})
	t.clean.join(head)
	return f, nobodys
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
