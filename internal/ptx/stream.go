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
	m      *Machine
	queue  []task
	graph  *graph // that is captured
	closed bool
	held   bool // it does as many tasks as it may, and no more
	may    int
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
		return s.enqueue(t)
	})
}

// mostQueued bounds what waits in a stream.
const mostQueued = 4096

func (s *stream) enqueue(t task) error {
	s.queue = append(s.queue, t)
	switch {
	case s.m.conf.Late == nil:
		return s.m.advanceUntil(func() bool { return len(s.queue) == 0 })
	case len(s.queue) > mostQueued:
		return s.m.advanceUntil(func() bool { return len(s.queue) < mostQueued/2 })
	}
	return nil
}

// advanceUntil advances streams until enough is done. Which of those that may is drawn by chance:
// one goes on for a while, others may rest all along.
func (m *Machine) advanceUntil(enough func() bool) error {
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
			case m.holds():
				m.host.freed.Wait()
				continue
			default:
				return errors.New("streams wait for one another")
			}
			if m.conf.Late == nil {
				m.doTask(at)
				at = nil
				continue
			}
		}
		m.doTask(at)
	}
	if m.host.freed != nil {
		m.host.freed.Broadcast() // others who wait may have what they wait for
	}
	return nil
}

func (s *stream) can() bool {
	return len(s.queue) > 0 && s.queue[0].ready() && (!s.held || s.may > 0)
}

// doTask does the first task of a stream.
func (m *Machine) doTask(s *stream) {
	t := s.queue[0]
	s.may--
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

// drain does all that is queued.
func (m *Machine) drain() {
	_ = m.advanceUntil(func() bool {
		return !slices.ContainsFunc(m.streams, func(s *stream) bool { return len(s.queue) > 0 })
	})
}

// CopyIn is Stream's.
func (s *stream) CopyIn(at uintptr, src []byte) error {
	return s.move("copy to the device", len(src), func() (to, from []byte, err error) {
		to, err = s.m.proc.Memory.Bytes(uint64(at), len(src))
		return to, src, errors.Join(err, s.m.pinned.checkPinned(src))
	})
}

// CopyOut is Stream's.
func (s *stream) CopyOut(dst []byte, at uintptr) error {
	return s.move("copy from the device", len(dst), func() (to, from []byte, err error) {
		from, err = s.m.proc.Memory.Bytes(uint64(at), len(dst))
		return dst, from, errors.Join(err, s.m.pinned.checkPinned(dst))
	})
}

// Copy is Stream's.
func (s *stream) Copy(dst, src uintptr, n int) error {
	return s.move("copy", n, func() (to, from []byte, err error) {
		to, err = s.m.proc.Memory.Bytes(uint64(dst), n)
		from, err2 := s.m.proc.Memory.Bytes(uint64(src), n)
		return to, from, errors.Join(err, err2)
	})
}

// Zero is Stream's.
func (s *stream) Zero(at uintptr, n int) error {
	return s.move("zero", n, func() (to, from []byte, err error) {
		to, err = s.m.proc.Memory.Bytes(uint64(at), n)
		return to, nil, err
	})
}

// move submits a copy between what find gives, which is looked for now, and again when its time has
// come; without a source it clears.
func (s *stream) move(op string, n int, find func() (to, from []byte, err error)) error {
	return s.submit(op, func() (task, error) {
		if _, _, err := find(); err != nil {
			return task{}, err
		}
		return task{do: func() error {
			to, from, err := find()
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", op, err)
			case from == nil:
				clear(to)
			}
			copy(to, from)
			s.m.time += int64(n)
			return nil
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
			if err := f.checkLaunch(s.m, l, list.Args); err != nil {
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
				if err := l.Func.(*fn).launch(s.m, l, args); err != nil {
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
		return s.m.advanceUntil(func() bool { return len(s.queue) == 0 })
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
	_ = s.m.advanceUntil(func() bool { return len(s.queue) == 0 })
	s.closed = true
	s.m.streams = slices.DeleteFunc(s.m.streams, func(o *stream) bool { return o == s })
	return nil
}
