package cuda

import (
	"errors"
	"sync"
)

// mark is an event, and memory for a fault record.
type mark struct {
	done   Event
	record []byte // FaultBytes of pinned memory
}

// look is a look at the fault record, as it is when what led to some work is done, or later.
type look struct {
	*mark
	g      *GPU
	number int   // the watcher's
	whole  bool  // all work that may have written the record is done by then
	epoch  int   // of the record
	need   clock // the work
	after  clock // what led to it
	done   clock // all that is done by then
	seen   clock // what had been looked at when this look was asked for
}

// look asks for the record on a stream, once need is done.
func (g *GPU) look(stream int, need *clock) (look, error) {
	l := look{g: g, need: *need}
	var err error
	if l.mark, err = g.marks.take(); err != nil {
		return l, err
	}
	if g.watcher != nil {
		l.number = g.watcher.Begin()
	}
	g.mu.Lock()
	err = l.submitLocked(stream)
	g.mu.Unlock()
	if err != nil {
		l.drop()
	}
	return l, err
}

func (l *look) submitLocked(stream int) error {
	g := l.g
	l.epoch, l.seen = g.telling.epoch, g.telling.seen
	l.after = g.order.after(&l.need)
	l.after.join(&l.need)
	need := l.need
	g.blocks.of(g.fault).use.before(&need, false) // kernels are not noted there
	g.order.wait(stream, &need)
	if err := g.obey(); err != nil {
		return err
	}
	l.done = g.order.known[stream]
	l.done.join(&g.order.done)
	l.whole = l.done.covers(&g.telling.named)
	s := g.streams[stream]
	return errors.Join(s.CopyOut(l.record, g.fault), s.Record(l.mark.done))
}

// end waits, gives the mark back, and says what was found; drop gives it back where nobody would hear that. One of them is called, once.
func (l look) end() error {
	defer l.drop()
	if err := l.mark.done.Sync(); err != nil {
		return err
	}
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order.finished(&l.done)
	if faultOf(l.record).Code != 0 {
		return g.foundLocked(&l)
	}
	if l.epoch == g.telling.epoch {
		l.seen = g.telling.seen
	} // else it was cleared behind this look, or before it was done: others may have been told of it
	if g.telling.due(&l.after, &l.seen) {
		err := g.telling.last()
		g.telling.tell(&l.after, &g.order.chain, &g.order.head)
		return err
	}
	g.telling.clean(&l.done)
	if l.whole && g.watcher != nil {
		g.watcher.Clean(l.number)
	}
	return nil
}

func (l look) drop() { l.g.marks.give(l.mark) }

// foundLocked is the error of what a look found. All who looked before it is told of are told; then the record is ready for the next.
func (g *GPU) foundLocked(l *look) error {
	err := g.telling.after(l.epoch)
	if l.epoch == g.telling.epoch {
		var lost error
		if err, lost = g.clearLocked(l.mark); lost != nil {
			return lost
		}
	} else if err == nil {
		err = g.explain(faultOf(l.record))
	}
	g.telling.tell(&l.after, &g.order.chain, &g.order.head)
	return err
}

func (g *GPU) explain(f Fault) error {
	if g.watcher == nil {
		return &FaultError{f}
	}
	return g.watcher.Explain(f)
}

// clearLocked reads a record that tells of something, and clears it. A kernel may still be at it, and others have found it taken: so all that was submitted is done before, and
// nothing is submitted until it is clear.
func (g *GPU) clearLocked(m *mark) (found, lost error) {
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
	found = g.explain(faultOf(m.record)) // before a later look may find nothing, and it is forgotten who asked
	g.telling.clear(found)
	return found, nil
}

// marks are marks that are not in use.
type marks struct {
	driver Driver

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

func (m *mark) close(d Driver) error { return errors.Join(m.done.Close(), d.Unpin(m.record)) }

func (s *marks) close() error {
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
