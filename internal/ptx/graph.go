package ptx

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// graph is tasks that were captured.
type graph struct {
	m      *Machine
	tasks  []task
	closed bool
}

// Capture is Stream's.
func (s *stream) Capture(submit func() error) (cuda.Graph, error) {
	g := &graph{m: s.m}
	if err := s.m.do("capture", func() error {
		switch {
		case s.closed:
			return device.ErrClosed
		case s.graph != nil:
			return errCapture
		}
		s.graph = g
		return nil
	}); err != nil {
		return nil, err
	}
	ended := false
	end := func() {
		s.m.host.mu.Lock()
		defer s.m.host.mu.Unlock()
		s.graph, ended = nil, true
	}
	defer func() {
		if !ended {
			end() // submit panics
		}
	}()
	err := submit()
	end()
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Replay is Stream's.
func (s *stream) Replay(in cuda.Graph) error {
	return s.m.do("replay", func() error {
		g, ok := in.(*graph)
		switch {
		case s.closed:
			return device.ErrClosed
		case !ok || g.m != s.m:
			return errGone
		case g.closed:
			return device.ErrReleased
		case s.graph != nil:
			return errCapture
		}
		for _, t := range g.tasks {
			if err := s.enqueue(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close is Graph's. What was replayed is still done.
func (g *graph) Close() error {
	g.m.host.mu.Lock()
	defer g.m.host.mu.Unlock()
	g.closed = true
	return nil
}
