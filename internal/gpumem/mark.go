package gpumem

import (
	"errors"
	"github.com/weft-project/weft/device/cuda"
	"sync"
)

// mark is an event, and memory for a fault record.
type mark struct {
	done   cuda.Event
	record []byte // FaultBytes of pinned memory
}

// look is a look at the fault record, as it is when some work is done, or later.
type look struct {
	*mark
	g      *GPU
	of     []uintptr // whose values it is about; none: all
	number int       // the watcher's
	whole  bool      // all work that may have written the record is done by then
	epoch  int       // of the record
	done   clock     // all that is done by then
}

// look asks for the record on a stream, once need is done. Where something is known to be wrong
// already, that is the error.
func (g *GPU) look(stream int, need *clock, of ...uintptr) (look, error) {
	l := look{g: g, of: of}
	var err error
	if l.mark, err = g.marks.take(); err != nil {
		return l, err
	}
	if g.watcher != nil {
		l.number = g.watcher.Begin()
	}
	g.mu.Lock()
	if err = g.tellLocked(of); err == nil {
		err = l.submitLocked(stream, *need)
	}
	g.mu.Unlock()
	if err != nil {
		l.drop()
	}
	return l, err
}

func (l *look) submitLocked(stream int, need clock) error {
	g := l.g
	l.epoch = g.telling.epoch
	g.blocks.of(g.fault).use.before(&need, false) // kernels are not noted there
	g.order.wait(stream, &need)
	if err := g.obey(); err != nil {
		return err
	}
	l.done = g.order.known[stream]
	l.done.advanceTo(&g.order.done)
	l.whole = l.done.covers(&g.telling.names)
	s := g.streams[stream]
	return errors.Join(s.CopyOut(l.record, g.fault), s.Record(l.mark.done))
}

// end waits, gives the mark back, and says what was found; drop gives it back where nobody would
// hear that. One of them is called, once.
func (l look) end() error {
	defer l.drop()
	if err := l.mark.done.Sync(); err != nil {
		return err
	}
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order.finished(&l.done)
	var nobodys *found
	if l.epoch == g.telling.epoch { // else it was cleared behind this look, or before it was done
		var lost error
		if nobodys, lost = l.foundLocked(); lost != nil {
			return lost
		}
	}
	if err := l.tellLocked(); err != nil {
		return err
	}
	if nobodys != nil {
		nobodys.told = true
		return nobodys.err
	}
	return nil
}

func (l *look) drop() { l.g.marks.give(l.mark) }

// foundLocked goes by what is in the record. A fault of which nobody knows whose it is, and nobody
// would hear, is for who found it.
func (l *look) foundLocked() (nobodys *found, lost error) {
	g := l.g
	if faultOf(l.record).Code != 0 {
		return g.clearLocked(l.mark)
	}
	g.telling.clean.advanceTo(&l.done)
	if l.whole && g.watcher != nil {
		g.watcher.Clean(l.number)
	}
	return nil, nil
}

// tellLocked is what is to be told to who looked.
func (l *look) tellLocked() error {
	t := &l.g.telling
	if len(l.of) > 0 {
		return l.g.tellLocked(l.of)
	}
	f := t.untold()
	if l.epoch != t.epoch {
		f = t.after(l.epoch)
	}
	if f == nil {
		return nil
	}
	f.told = true
	return f.err
}

// tellLocked is what is known to be wrong with the values at some addresses.
func (g *GPU) tellLocked(of []uintptr) error {
	if !g.faulted.Load() {
		return nil
	}
	for _, at := range of {
		if err := g.blocks.of(at).faultFor(false); err != nil {
			return err
		}
	}
	return nil
}

func (g *GPU) explain(f Fault) error {
	if g.watcher == nil {
		return &FaultError{f}
	}
	return g.watcher.Explain(f)
}

// clearLocked reads a record that tells of something, and clears it. A kernel may still be at it,
// and others have found it taken: so all that was submitted is done before, and nothing is
// submitted until it is clear.
func (g *GPU) clearLocked(m *mark) (nobodys *found, lost error) {
	all, s := g.order.head, g.streams[marker]
	g.order.wait(marker, &all)
	if err := g.obey(); err != nil {
		return nil, err
	}
	if err := errors.Join(s.CopyOut(m.record, g.fault), s.Zero(g.fault, FaultBytes), s.Record(m.done)); err != nil {
		return nil, err
	}
	if err := m.done.Sync(); err != nil {
		return nil, err
	}
	g.order.finished(&all)
	g.faulted.Store(true)
	up, known := raised(m.record)
	f, is := g.telling.clear(g.explain(faultOf(m.record)), up, &all, g.blocks.origins)
	if known || !is {
		f = nil
	}
	return f, nil
}

// marks are marks that are not in use.
type marks struct {
	driver cuda.Driver

	mu     sync.Mutex
	idle   []*mark
	closed bool
}

func (s *marks) take() (*mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		m := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return m, nil
	}
	m := new(mark)
	var err error
	if m.record, err = s.driver.Pin(FaultBytes); err != nil {
		return nil, err
	}
	if m.done, err = s.driver.Event(); err != nil {
		return nil, errors.Join(err, s.driver.Unpin(m.record))
	}
	return m, nil
}

func (s *marks) give(m *mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = m.close(s.driver)
		return
	}
	s.idle = append(s.idle, m)
}

func (m *mark) close(d cuda.Driver) error { return errors.Join(m.done.Close(), d.Unpin(m.record)) }

func (s *marks) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, m := range s.idle {
		errs = append(errs, m.close(s.driver))
	}
	s.idle = nil
	return errors.Join(errs...)
}
