package gpumem

import (
	"errors"
	"github.com/weft-project/weft/device/cuda"
	"sync"
)

const (
	laneBytes   = 8 << 20  // of pinned memory for the uploads of a stream, where there are few streams
	pinnedBytes = 64 << 20 // for those of all streams
)

// lane is pinned memory that the uploads of one source go through. Each source has its own, as what
// is in it stands behind the source's work: so no upload waits for another stream's.
type lane struct {
	mu   sync.Mutex // held while a part is submitted, so that parts are in the stream's order
	mem  []byte     // from the first upload on
	belt belt
}

// laneSize is how large the lane of each of so many sources is.
func laneSize(sources int) int { return min(laneBytes, pinnedBytes/sources) &^ (beltStep - 1) }

// most is how many bytes go at once: while some are on their way others are filled in, and what is
// smaller still finds room.
func (l *lane) most() int { return l.belt.size / 4 }

// Upload is Memory's. What goes to memory that work under way still uses goes behind it, on its
// stream. The host waits only where the lane is full, for the oldest upload in it.
func (g *GPU) Upload(at uintptr, src []byte) error {
	g.mu.Lock()
	var need clock
	g.blocks.of(at).use.before(&need, true)
	source := g.order.latest(&need, false)
	if source < 0 {
		source = uploads
	}
	done := g.order.done[source]
	g.mu.Unlock()
	for most := g.lanes[source].most(); len(src) > 0; {
		n := min(len(src), most)
		if err := g.pass(source, done, at, src[:n]); err != nil {
			return err
		}
		at, src = at+uintptr(n), src[n:]
	}
	return nil
}

// pass has a part pass through a source's lane, of whose work so much is done at least.
func (g *GPU) pass(source int, done uint64, at uintptr, src []byte) error {
	l := &g.lanes[source]
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.room(g.driver, len(src), done)
	if err != nil {
		return err
	}
	mem := l.mem[p.from:p.to]
	copy(mem, src)
	p.n, err = g.upload(source, at, mem, p.done)
	return err
}

// room gives a part for n bytes. Where there is none it waits for the oldest.
func (l *lane) room(d cuda.Driver, n int, done uint64) (p *part, err error) {
	if l.mem == nil {
		if l.mem, err = d.Pin(l.belt.size); err != nil {
			return nil, err
		}
	}
	from, ok := l.belt.place(n)
	for !ok || l.belt.count > 0 && l.belt.oldest().n <= done {
		if err = l.belt.oldest().done.Sync(); err != nil {
			return nil, err
		}
		l.belt.drop()
		from, ok = l.belt.place(n)
	}
	if p = l.belt.push(from, n); p.done == nil {
		if p.done, err = d.Event(); err != nil {
			l.belt.pop()
		}
	}
	return p, err
}

// upload submits a part, and says which of its source's work it is.
func (g *GPU) upload(source int, at uintptr, mem []byte, done cuda.Event) (n uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var need clock
	to := g.blocks.of(at)
	to.use.before(&need, true)
	light := source != uploads
	n = g.order.submit(source, &need, light && need[source] == g.order.head[source], light)
	to.use.used(source, n, true)
	if err := g.obey(); err != nil {
		return n, err
	}
	s := g.streams[source]
	return n, errors.Join(s.CopyIn(at, mem), s.Record(done))
}

// close is called when nothing is under way.
func (l *lane) close(d cuda.Driver) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	if l.mem != nil {
		errs = append(errs, d.Unpin(l.mem))
	}
	for _, p := range l.belt.parts {
		if p.done != nil {
			errs = append(errs, p.done.Close())
		}
	}
	l.mem = nil
	l.belt.clear()
	return errors.Join(errs...)
}
