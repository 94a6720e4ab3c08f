package ptx

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// task is one thing that a stream does.
type task struct {
	do    func() error
	wait  *event // where not nil, has happened at least that often before
	round int
}

func (t *task) ready() bool { return t.wait == nil || t.wait.done >= t.round }

// stream is a queue of tasks.
type stream struct {
	m       *Machine
	queue   []task
	graph   *graph // that is captured
	failure error  // a transfer that could not be done
	closed  bool
}

var errCapture = errors.New("not allowed while the stream is captured")

// Stream is Driver's.
func (m *Machine) Stream() (out cuda.Stream, err error) {
	err = m.do("stream", func() error {
		s := &stream{m: m}
		m.streams = append(m.streams, s)
		out = s
		return nil
	})
	return out, err
}

// submit checks and queues a task, or does it at once; prepare says what it is.
func (s *stream) submit(op string, prepare func() (task, error)) error {
	return s.m.do(op, func() error {
		if s.closed {
			return device.ErrClosed
		}
		t, err := prepare()
		if err != nil {
			return err
		}
		if s.graph != nil {
			if t.do == nil || t.wait != nil {
				return errCapture
			}
			s.graph.tasks = append(s.graph.tasks, t)
			return nil
		}
		return s.put(t)
	})
}

// mostQueued bounds what waits in a stream.
const mostQueued = 4096

func (s *stream) put(t task) error {
	s.queue = append(s.queue, t)
	switch {
	case s.m.conf.Late == nil:
		return s.m.finish(func() bool { return len(s.queue) == 0 })
	case len(s.queue) > mostQueued:
		return s.m.finish(func() bool { return len(s.queue) < mostQueued/2 })
	}
	return nil
}

// finish advances streams until enough is done. Which of those that may is drawn by chance: one goes on for a while, others may rest all along.
func (m *Machine) finish(enough func() bool) error {
	var resting []*stream
	var at *stream
	if m.conf.Late != nil {
		for _, s := range m.streams {
			if m.conf.Late.IntN(2) == 0 {
				resting = append(resting, s)
			}
		}
	}
	for !enough() && m.lost == nil {
		if at == nil || !at.can() || m.conf.Late.IntN(4) == 0 {
			var can []*stream
			for _, s := range m.streams {
				if s.can() && !slices.Contains(resting, s) {
					can = append(can, s)
				}
			}
			switch {
			case len(can) > 0 && m.conf.Late != nil:
				at = can[m.conf.Late.IntN(len(can))]
			case len(can) > 0:
				at = can[0]
			case len(resting) > 0:
				resting = nil
				continue
			default:
				return errors.New("streams wait for one another")
			}
			if m.conf.Late == nil {
				m.step(at)
				at = nil
				continue
			}
		}
		m.step(at)
	}
	return nil
}

func (s *stream) can() bool { return len(s.queue) > 0 && s.queue[0].ready() }

// step does the first task of a stream.
func (m *Machine) step(s *stream) {
	t := s.queue[0]
	s.queue[0] = task{}
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
	}
	if t.do == nil {
		return
	}
	if err := t.do(); err != nil {
		m.lose(err)
	}
}

// settle does all that is queued.
func (m *Machine) settle() {
	_ = m.finish(func() bool {
		return !slices.ContainsFunc(m.streams, func(s *stream) bool { return len(s.queue) > 0 })
	})
}

// CopyIn is Stream's.
func (s *stream) CopyIn(at uintptr, src []byte) error {
	return s.submit("copy to the device", func() (task, error) {
		if err := s.transfer(at, src); err != nil {
			return task{}, err
		}
		return task{do: func() error {
			dst, err := s.m.span(at, len(src))
			s.m.time += int64(len(src))
			copy(dst, src)
			return err
		}}, nil
	})
}

// CopyOut is Stream's.
func (s *stream) CopyOut(dst []byte, at uintptr) error {
	return s.submit("copy from the device", func() (task, error) {
		if err := s.transfer(at, dst); err != nil {
			return task{}, err
		}
		return task{do: func() error {
			src, err := s.m.span(at, len(dst))
			s.m.time += int64(len(dst))
			copy(dst, src)
			return err
		}}, nil
	})
}

func (s *stream) transfer(at uintptr, host []byte) error {
	if len(host) > 0 && !s.m.pinned.has(host) {
		return fmt.Errorf("%d bytes of host memory that is not pinned", len(host))
	}
	return s.valid(at, len(host))
}

func (s *stream) valid(at uintptr, n int) error {
	if n == 0 {
		return nil
	}
	_, err := s.m.span(at, n)
	return err
}

// Copy is Stream's.
func (s *stream) Copy(dst, src uintptr, n int) error {
	return s.submit("copy", func() (task, error) {
		if err := errors.Join(s.valid(dst, n), s.valid(src, n)); err != nil {
			return task{}, err
		}
		return task{do: func() error {
			to, err := s.m.span(dst, n)
			from, err2 := s.m.span(src, n)
			s.m.time += int64(n)
			copy(to, from)
			return errors.Join(err, err2)
		}}, nil
	})
}

// Zero is Stream's.
func (s *stream) Zero(at uintptr, n int) error {
	return s.submit("zero", func() (task, error) {
		if err := s.valid(at, n); err != nil {
			return task{}, err
		}
		return task{do: func() error {
			b, err := s.m.span(at, n)
			s.m.time += int64(n)
			clear(b)
			return err
		}}, nil
	})
}

// Run is Stream's.
func (s *stream) Run(list *cuda.List) error {
	return s.submit("launch", func() (task, error) {
		for k := range list.Launches {
			l := &list.Launches[k]
			f, ok := l.Func.(*fn)
			if !ok {
				return task{}, fmt.Errorf("%w: launch %d is of a function of another driver", cuda.ErrLaunch, k)
			}
			if err := f.check(s.m, l, list.Args); err != nil {
				return task{}, err
			}
		}
		launches, args := list.Launches, list.Args
		if s.m.conf.Late != nil || s.graph != nil || len(s.queue) > 0 {
			launches, args = slices.Clone(launches), slices.Clone(args)
		}
		return task{do: func() error {
			for k := range launches {
				l := &launches[k]
				if err := l.Func.(*fn).run(s.m, l, args[l.Off:l.Off+l.Len]); err != nil {
					return err
				}
			}
			return nil
		}}, nil
	})
}

// Sync is Stream's.
func (s *stream) Sync() error {
	return s.m.do("sync", func() error {
		switch {
		case s.closed:
			return device.ErrClosed
		case s.graph != nil:
			return errCapture
		}
		return s.m.finish(func() bool { return len(s.queue) == 0 })
	})
}

// Close is Stream's. What was submitted is still done.
func (s *stream) Close() error {
	s.m.host.mu.Lock()
	defer s.m.host.mu.Unlock()
	if s.closed || s.m.closed {
		return nil
	}
	if s.graph != nil {
		return failed("close", errCapture)
	}
	_ = s.m.finish(func() bool { return len(s.queue) == 0 })
	s.closed = true
	s.m.streams = slices.DeleteFunc(s.m.streams, func(o *stream) bool { return o == s })
	return nil
}
