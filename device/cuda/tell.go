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
	with  *job   // it is one with
	steps clock  // its last steps
	heeds uint64 // the flags that they heed
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
	a.heeds |= b.heeds
	if a.left == nil {
		a.left = b.left
	}
	b.with, b.left = a, nil
	return a
}

// origin is what is known of a value: what it came of.
type origin struct {
	asks    clock  // the last runs that may have met a fault, of those that it depends on
	flags   uint64 // that these raise then
	job     *job   // nil: none
	spoiled *found // it came of this
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

// tellings decides who is told of a fault. The record tells of one, and has the flags of all runs that met one, of 64 that the runs have in turn.
// So when it is cleared all values that depend on a run with such a flag, of which it is not known that it met none, are spoiled, and what depends on them later is, too: who asks for one is
// always told. Steps do nothing while a flag is up of what they go by: so no parameter is spoiled, but all that were under way may have been left out. Like order it does no I/O.
type tellings struct {
	clean clock // runs that met no fault, and steps that were made, as far as is known; or that is settled
	names clock // the last runs that may have met one
	epoch int   // how often the record was cleared
	found [keptFaults]*found
}

// add has a value depend on another, too.
func (t *tellings) add(o, p *origin) {
	j := one(o.job, p.job)
	t.part(o, p)
	o.job = j
}

// part has a part of a value come of another, of whose job it is then: places that many values pass through make no job of theirs.
func (t *tellings) part(o, p *origin) {
	if !t.clean.covers(&p.asks) {
		o.asks.join(&p.asks)
		o.flags |= p.flags
	}
	o.job = p.job
	if o.spoiled == nil {
		o.spoiled = p.spoiled
	}
}

// asked notes the n-th run of a source, which may meet a fault, and of which a value came.
func (t *tellings) asked(o *origin, source int, n uint64, flag uint8) {
	o.asks.raise(source, n)
	o.flags |= 1 << flag
	t.names.raise(source, n)
}

// stepped notes a step by a value, and says which flags it is to heed.
func (t *tellings) stepped(o *origin, source int, n uint64) (heed uint64) {
	if o.job = o.job.root(); o.job == nil {
		o.job = new(job)
	}
	j := o.job
	if t.clean.covers(&j.steps) {
		j.heeds = 0
	}
	j.steps.raise(source, n)
	j.heeds |= o.flags
	return o.flags
}

// clear notes that a fault was found, what its error is, whose flags are up, and that the record is ready for the next. All that was submitted is done, up to head; values are all there
// are. Where nobody would hear of it, of none, the fault is said to be nobody's. Where all who would hear of an earlier one, as it was met in going on with what that had spoiled, it counts as told.
func (t *tellings) clear(err error, raised uint64, head *clock, values func(func(*origin))) (f *found, nobodys bool) {
	f, nobodys = &found{err: err, told: true}, true
	t.epoch++
	t.found[t.epoch%keptFaults] = f
	values(func(o *origin) {
		if o.flags&raised != 0 && !t.clean.covers(&o.asks) {
			nobodys = false
			if o.spoiled == nil {
				o.spoiled, f.told = f, false
			}
		}
		if j := o.job.root(); j != nil && j.heeds&raised != 0 && !t.clean.covers(&j.steps) {
			j.left, nobodys, f.told = f, false, false
		}
	})
	f.told = f.told && !nobodys
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
