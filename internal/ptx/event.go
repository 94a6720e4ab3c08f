package ptx

import (
	"errors"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// event is a point in a stream. Every Record is a round.
type event struct {
	m        *Machine
	recorded int // rounds that were submitted
	done     int // the latest that happened
	time     int64
	closed   bool
}

// Event is Driver's.
func (m *Machine) Event() (out cuda.Event, err error) {
	err = m.do("event", func() error { out = &event{m: m}; return nil })
	return out, err
}

func (s *stream) event(e cuda.Event) (*event, error) {
	v, ok := e.(*event)
	switch {
	case !ok || v.m != s.m:
		return nil, errGone
	case v.closed:
		return nil, device.ErrReleased
	case s.graph != nil:
		return nil, errCapture
	}
	return v, nil
}

// Record is Stream's.
func (s *stream) Record(e cuda.Event) error {
	return s.submit("record", func() (task, error) {
		v, err := s.event(e)
		if err != nil {
			return task{}, err
		}
		v.recorded++
		round := v.recorded
		return task{do: func() error {
			v.done, v.time = max(v.done, round), s.m.time
			return nil
		}}, nil
	})
}

// Wait is Stream's. For an event that was never recorded there is nothing to wait for.
func (s *stream) Wait(e cuda.Event) error {
	return s.submit("wait", func() (task, error) {
		v, err := s.event(e)
		if err != nil {
			return task{}, err
		}
		return task{wait: v, round: v.recorded}, nil
	})
}

// Sync is Event's.
func (e *event) Sync() error {
	return e.m.do("event", func() error {
		if e.closed {
			return device.ErrReleased
		}
		round := e.recorded
		return e.m.advanceUntil(func() bool { return e.done >= round })
	})
}

// Timer is Driver's.
func (m *Machine) Timer() (out cuda.Timer, err error) {
	err = m.do("event", func() error { out = &event{m: m}; return nil })
	return out, err
}

// Since is Timer's. An instruction of a warp takes a nanosecond here, and so does a byte.
func (e *event) Since(from cuda.Timer) (ms float64, err error) {
	err = e.m.do("elapsed", func() error {
		f, ok := from.(*event)
		switch {
		case !ok || f.m != e.m:
			return errGone
		case e.recorded == 0 || f.recorded == 0 || e.done < e.recorded || f.done < f.recorded:
			return errors.New("an event that has not happened")
		}
		ms = float64(e.time-f.time) * 1e-6
		return nil
	})
	return ms, err
}

// Close is Event's.
func (e *event) Close() error {
	e.m.host.mu.Lock()
	defer e.m.host.mu.Unlock()
	e.closed = true
	return nil
}
