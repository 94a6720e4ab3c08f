package cuda

import (
	"errors"
	"sync"
)

// mark is a point in the stream of kernels.
type mark struct {
	done   Event
	record []byte // FaultBytes of pinned memory
	told   int    // how many faults had been told of when the record was asked for
}

// Mark is Exporter's.
func (g *GPU) Mark() (func() error, error) {
	m, err := g.marks.take()
	if err != nil {
		return nil, err
	}
	if err := g.compute.Record(m.done); err != nil {
		g.marks.give(m)
		return nil, err
	}
	return func() error {
		defer g.marks.give(m)
		return m.done.Sync()
	}, nil
}

// Check is Exporter's. What it costs beside Mark is a copy of the fault record in the stream of kernels.
func (g *GPU) Check() (func() error, error) {
	look, err := g.look()
	if err != nil {
		return nil, err
	}
	return look.end, nil
}

// look is a look at the fault record, as it is when the work before is done.
type look struct {
	*mark
	g      *GPU
	number int // the watcher's
}

// look asks for the record. The stream of kernels copies it, so that none writes it meanwhile, and as it is before what others submit from now on.
func (g *GPU) look() (look, error) {
	l := look{g: g}
	var err error
	if l.mark, err = g.marks.take(); err != nil {
		return l, err
	}
	if g.watcher != nil {
		l.number = g.watcher.Begin()
	}
	g.telling.Lock()
	l.told = g.told
	err = errors.Join(g.compute.CopyOut(l.record, g.fault), g.compute.Record(l.done))
	g.telling.Unlock()
	if err != nil {
		l.drop()
	}
	return l, err
}

// end waits, gives the mark back, and says what was found; drop gives it back where nobody would hear that. One of them is called, once.
func (l look) end() error {
	defer l.drop()
	if err := l.done.Sync(); err != nil {
		return err
	}
	return l.g.faults(l)
}

func (l look) drop() { l.g.marks.give(l.mark) }

// faults is the error of what was found. All who looked before it is told of are told; then the record is ready for the next.
func (g *GPU) faults(l look) error {
	f := faultOf(l.record)
	if f.Code == 0 {
		if g.watcher != nil {
			g.watcher.Clean(l.number)
		}
		return nil
	}
	var err error = &FaultError{f}
	if g.watcher != nil {
		err = g.watcher.Explain(f) // before a later look may find nothing, and it is forgotten who asked
	}
	g.telling.Lock()
	defer g.telling.Unlock()
	if l.told != g.told {
		return err // the record may be the next one's already
	}
	g.told++
	return errors.Join(err, g.compute.Zero(g.fault, FaultBytes))
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
