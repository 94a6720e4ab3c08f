package gpumem

// Sources are streams whose work others may have to wait for: those of kernels, that of uploads,
// and that of copies to and from memory that other processes see. The others only wait.
const (
	mostStreams = 8 // of kernels
	uploads     = mostStreams + iota - 1
	shares
	sources
)

// The streams that only wait.
const (
	early  = sources + iota // downloads of what may not be there yet
	ready                   // downloads of what is
	marker                  // looks at all there is
	far                     // copies to other GPUs
	waiters
)

// clock counts, for each source, what was submitted to it: a point in all of them.
type clock [sources]uint64

// raise has a clock reach at least n in a source.
func (c *clock) raise(source int, n uint64) { c[source] = max(c[source], n) }

// advanceTo has a clock reach at least another.
func (c *clock) advanceTo(other *clock) {
	for s, n := range other {
		c[s] = max(c[s], n)
	}
}

// covers says whether a clock has reached another.
func (c *clock) covers(other *clock) bool {
	for s, n := range other {
		if c[s] < n {
			return false
		}
	}
	return true
}

// history is who used a block of memory: the last write, and for each source the last read since.
type history struct {
	writer int
	wrote  uint64
	reads  clock
}

// before adds to need what a use of the block comes after.
func (h *history) before(need *clock, write bool) {
	need.raise(h.writer, h.wrote)
	if write {
		need.advanceTo(&h.reads)
	}
}

// used notes the use of the block by the n-th of a source, which comes after what before said.
func (h *history) used(source int, n uint64, write bool) {
	if write {
		*h = history{writer: source, wrote: n}
		return
	}
	h.reads[source] = n
}

// recorded is an event of a source, as it was recorded last.
type recorded struct {
	n  uint64 // what it comes after, of the source
	at clock  // and of all
}

// ringSize is how many events a source has. Of what came before the oldest, later ones are waited
// for.
const ringSize = 16

type ring struct {
	marks [ringSize]recorded
	next  int
}

// find gives the first event that is not before the n-th of the source; −1 where there is none.
func (r *ring) find(n uint64) int {
	best := -1
	for k := range r.marks {
		if m := r.marks[k].n; m >= n && (best < 0 || m < r.marks[best].n) {
			best = k
		}
	}
	return best
}

// op is what a stream is to be told before work is submitted to it: to record an event of its own,
// or to wait for one of a source.
type op struct {
	stream int
	wait   bool
	source int
	event  int // of the source's ring
}

// order decides on which stream work goes, and for what it waits there. It does no I/O, and is used
// by one goroutine at a time: who asks it for ops carries them out, in order, before anybody asks
// again.
//
// Work goes on the stream of what it depends on, where that came last there: so a program stays on
// its stream, and no event is recorded. Else it goes on a stream that has nothing to do, or was not
// used for the longest time; a few launches alone are not worth that, and go behind what they
// depend on. An event is recorded before a stream goes over to something else, and for a while
// before each run, once somebody had to wait for more than was needed.
//
// What it keeps are vector clocks: a stream that waited for another has waited for all that this
// one had waited for.
type order struct {
	streams int            // of kernels
	head    clock          // what was submitted
	done    clock          // what the host knows to be done of it
	known   [waiters]clock // by stream: what its next work comes after
	rings   [sources]ring
	turn    uint64
	turns   [sources]uint64 // when the source was used last
	exact   int             // runs for which events are recorded that nobody has asked for yet
	ops     []op            // to be carried out
}

// exactFor is for how many runs events are recorded after somebody had to wait for more than was
// needed.
const exactFor = 64

func newOrder(streams int) order { return order{streams: streams, ops: make([]op, 0, 2*sources+1)} }

// pick chooses a stream for a run that comes after need, of which what it reads is from; follows
// says that it comes after what was submitted there last. Light runs are not worth a stream of
// their own: they go behind what they read, also where other work was submitted there since.
func (o *order) pick(from, need *clock, light bool) (stream int, follows bool) {
	of := from
	behind := o.latest(from, false)
	if behind < 0 { // it reads only what is done: memory that was used before may still be what it waits for
		of, behind = need, o.latest(need, false)
	}
	if light && behind >= 0 {
		return behind, of[behind] == o.head[behind]
	}
	if s := o.latest(of, true); s >= 0 {
		return s, true
	}
	best := 0
	for s := range o.streams {
		switch {
		case o.head[s] <= o.done[s]:
			return s, false // it has nothing to do
		case o.turns[s] < o.turns[best]:
			best = s
		}
	}
	return best, false
}

// latest is the stream of kernels that was used last, of those with work in need that may not be
// done yet; where atHead says so, at their heads. −1: none.
func (o *order) latest(need *clock, atHead bool) int {
	best := -1
	for s := range o.streams {
		if n := need[s]; n > o.done[s] && (!atHead || n == o.head[s]) && (best < 0 || o.turns[s] > o.turns[best]) {
			best = s
		}
	}
	return best
}

// submit puts work into a source, after need, and numbers it.
func (o *order) submit(source int, need *clock, follows, light bool) (n uint64) {
	if !light && (!follows || o.exact > 0) {
		o.recordHead(source)
		o.exact = max(o.exact-1, 0)
	}
	o.wait(source, need)
	o.head[source]++
	n = o.head[source]
	o.known[source][source] = n
	o.turn++
	o.turns[source] = o.turn
	return n
}

// recordHead has an event recorded at a source's head, where there may be use for one and there is
// none: those who will need what is there then need not wait for what comes now.
func (o *order) recordHead(source int) {
	if n := o.head[source]; n > o.done[source] && o.rings[source].find(n) < 0 {
		o.record(source)
	}
}

// record has an event recorded at a source's head.
func (o *order) record(source int) (event int) {
	r := &o.rings[source]
	event = r.next
	r.next = (r.next + 1) % ringSize
	r.marks[event] = recorded{o.head[source], o.known[source]}
	o.ops = append(o.ops, op{source, false, source, event})
	return event
}

// point is an event of a source.
type point struct {
	source, event int // −1: at its head, not recorded yet
	at            clock
}

// points gives the events after which need is done, beside what is done and what known says. None
// of them can be left out.
func (o *order) points(need, known *clock, self int, into []point) []point {
	all := into[:0]
	for s, n := range need {
		if s == self || n <= o.done[s] || n <= known[s] {
			continue
		}
		p := point{s, o.rings[s].find(n), o.known[s]}
		if p.event >= 0 {
			p.at = o.rings[s].marks[p.event].at
		}
		if p.at[s] > n {
			o.exact = exactFor
		}
		all = append(all, p)
	}
	for k := 0; k < len(all) && len(all) > 1; {
		rest := *known
		rest.advanceTo(&o.done)
		for j := range all {
			if j != k {
				rest.advanceTo(&all[j].at)
			}
		}
		if enough(&rest, need, self) {
			all = append(all[:k], all[k+1:]...)
		} else {
			k++
		}
	}
	for k := range all {
		if p := &all[k]; p.event < 0 {
			p.event = o.record(p.source)
		}
	}
	return all
}

func enough(have, need *clock, self int) bool {
	for s, n := range need {
		if s != self && have[s] < n {
			return false
		}
	}
	return true
}

// wait has a stream wait for need.
func (o *order) wait(stream int, need *clock) {
	known := &o.known[stream]
	for s, n := range need {
		if n > known[s] && n > o.done[s] && s != stream {
			o.reach(stream, need)
			return
		}
	}
}

// reach is wait where there is something to wait for.
func (o *order) reach(stream int, need *clock) {
	var some [sources]point
	known := &o.known[stream]
	for _, p := range o.points(need, known, stream, some[:0]) {
		o.ops = append(o.ops, op{stream, true, p.source, p.event})
		known.advanceTo(&p.at)
	}
}

// finished tells that the host has seen the end of all that a clock has.
func (o *order) finished(c *clock) { o.done.advanceTo(c) }

// idle says whether a block can be used on a stream without a wait for others.
func (o *order) idle(h *history, stream int) bool {
	need := h.reads
	need.raise(h.writer, h.wrote)
	for s, n := range need {
		if s != stream && n > o.done[s] && n > o.known[stream][s] {
			return false
		}
	}
	return true
}
