package cuda

// keptFaults is how many faults are remembered for those whose looks found them, and come late to tell.
const keptFaults = 16

// tellings decides who is told of a fault. Of two that were found at about the same time one alone may be in the record, and no look knows which work
// a fault came of. So when the record is cleared, all work up to then that could have written it, or done nothing for it, and was not looked at, is in
// doubt: who first depends on some of it is told. Like order it does no I/O.
type tellings struct {
	named clock // the last runs that name the record
	seen  clock // of them, those that were looked at: nothing was found, or somebody was told
	doubt clock // of them, those before the record was last cleared
	epoch int   // how often that was
	errs  [keptFaults]error
}

// open says whether anything is in doubt.
func (t *tellings) open() bool { return !t.seen.covers(&t.doubt) }

// due says whether who comes after a clock depends on something in doubt that had not been looked at, as seen says.
func (t *tellings) due(after, seen *clock) bool {
	for s, n := range t.doubt {
		if seen[s] < min(n, after[s]) {
			return true
		}
	}
	return false
}

// clean notes a look after a clock that found nothing.
func (t *tellings) clean(after *clock) { t.seen.join(after) }

// tell notes that who comes after a clock is told: with that all of a chain are, of which it saw a part. chain is where the latest of each source began, and head
// where it ends.
func (t *tellings) tell(after, chain, head *clock) {
	for s, n := range after {
		if n > 0 && n >= chain[s] {
			n = head[s]
		}
		t.seen.raise(s, n)
	}
}

// clear notes that a fault was found, what its error is, and that the record is ready for the next.
func (t *tellings) clear(err error) {
	t.epoch++
	t.errs[t.epoch%keptFaults] = err
	t.doubt = t.named
}

// last is the error of the fault that was found last; after one is that of the first after an epoch, nil where it is forgotten.
func (t *tellings) last() error { return t.errs[t.epoch%keptFaults] }

func (t *tellings) after(epoch int) error {
	if t.epoch-epoch > keptFaults {
		return nil
	}
	return t.errs[(epoch+1)%keptFaults]
}
