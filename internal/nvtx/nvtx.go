package nvtx

import "sync"

// Range is a stretch of time that a profiler shows. The zero value is none. It may end on another
// thread than it began on.
type Range struct {
	of *tool
	id uintptr
}

// opened is the profiler; nil: there is none.
var opened = sync.OnceValue(open)

// On says whether a profiler listens, so that a name is worth making.
func On() bool { return opened() != nil }

// Begin begins a range.
func Begin(name string) Range {
	t := opened()
	if t == nil {
		return Range{}
	}
	return Range{t, t.begun(name)}
}

// End ends it.
func (r Range) End() {
	if r.of != nil {
		r.of.ended(r.id)
	}
}
