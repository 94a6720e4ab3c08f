//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "calls.h"

#cgo noescape weft_captured
*/
import "C"

import (
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gate"
)

// event is a point in a stream.
type event struct {
	d      *driver
	e      cu.Event
	inside gate.Gate
}

var _ cuda.Timer = (*event)(nil)

func (e *event) c() C.CUevent { return *(*C.CUevent)(unsafe.Pointer(&e.e)) }

// Event is Driver's.
func (d *driver) Event() (cuda.Event, error) { return d.event(cu.DisableTiming) }

// Timer is Driver's.
func (d *driver) Timer() (cuda.Timer, error) { return d.event(cu.DefaultEvent) }

func (d *driver) event(flags cu.EventFlags) (cuda.Timer, error) {
	e := &event{d: d}
	err := d.within("cuEventCreate", func() (err error) {
		e.e, err = cu.MakeEvent(flags)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// mine begins to use an event of this driver, which is not closed before its inside is left.
func (d *driver) mine(op string, e cuda.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own.d != d {
		return nil, &cuda.Error{Op: op, Text: "the event is another GPU's, or another driver's", Err: device.ErrElsewhere}
	}
	if !own.inside.Enter() {
		return nil, &cuda.Error{Op: op, Text: "the event", Err: device.ErrClosed}
	}
	return own, nil
}

// Record is Stream's.
func (s *stream) Record(e cuda.Event) error {
	return s.with("cuEventRecord", e, func(own *event) C.weft_result { return C.weft_record(s.d.context(), own.c(), s.c()) })
}

// Wait is Stream's.
func (s *stream) Wait(e cuda.Event) error {
	return s.with("cuStreamWaitEvent", e, func(own *event) C.weft_result { return C.weft_wait(s.d.context(), s.c(), own.c()) })
}

// with makes a call with an event.
func (s *stream) with(op string, e cuda.Event, call func(own *event) C.weft_result) error {
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	own, err := s.d.mine(op, e)
	if err != nil {
		return err
	}
	defer own.inside.Leave()
	return told(call(own), "")
}

// Sync is Event's.
func (e *event) Sync() error {
	const op = "cuEventSynchronize"
	if err := e.d.enter(op); err != nil {
		return err
	}
	defer e.d.exit()
	if _, err := e.d.mine(op, e); err != nil {
		return err
	}
	defer e.inside.Leave()
	return told(C.weft_event_sync(e.d.context(), e.c()), "")
}

// Since is Timer's.
func (e *event) Since(from cuda.Timer) (ms float64, err error) {
	const op = "cuEventElapsedTime"
	begin, err := e.d.mine(op, from)
	if err != nil {
		return 0, err
	}
	defer begin.inside.Leave()
	if _, err = e.d.mine(op, e); err != nil {
		return 0, err
	}
	defer e.inside.Leave()
	err = e.d.within(op, func() (err error) {
		ms, err = begin.e.Elapsed(e.e)
		return err
	})
	return ms, err
}

// Close is Event's.
func (e *event) Close() error {
	if !e.inside.Close() {
		return nil
	}
	return given(e.d.within("cuEventDestroy", func() error { return cu.DestroyEvent(&e.e) }))
}

// graph is recorded launches.
type graph struct {
	d      *driver
	exec   C.CUgraphExec
	inside gate.Gate
	mu     sync.Mutex // the driver does not guard a graph: one thread at a time launches it
}

// Capture is Stream's. Nobody else may use the stream until it returns: what they submit would be
// recorded too. A stream that is closed while submit runs gives no graph.
func (s *stream) Capture(submit func() error) (cuda.Graph, error) {
	if err := s.call("cuStreamBeginCapture", func() C.weft_result { return C.weft_capture(s.d.context(), s.c()) }); err != nil {
		return nil, err
	}
	g := &graph{d: s.d}
	ended := false
	end := func(keep C.int) error {
		ended = true
		return s.call("cuStreamEndCapture", func() C.weft_result { return C.weft_captured(s.d.context(), s.c(), keep, &g.exec) })
	}
	defer func() {
		if !ended { // submit panics: the stream must not go on recording
			_ = end(0)
		}
	}()
	if err := submit(); err != nil {
		_ = end(0)
		return nil, err
	}
	if err := end(1); err != nil {
		return nil, err
	}
	return g, nil
}

// call makes a call on the stream.
func (s *stream) call(op string, call func() C.weft_result) error {
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	return told(call(), "")
}

// Replay is Stream's.
func (s *stream) Replay(g cuda.Graph) error {
	const op = "cuGraphLaunch"
	own, ok := g.(*graph)
	if !ok || own.d != s.d {
		return &cuda.Error{Op: op, Text: "the graph is another GPU's, or another driver's", Err: device.ErrElsewhere}
	}
	if !own.inside.Enter() {
		return &cuda.Error{Op: op, Text: "the graph", Err: device.ErrClosed}
	}
	defer own.inside.Leave()
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	own.mu.Lock()
	defer own.mu.Unlock()
	return told(C.weft_replay(s.d.context(), own.exec, s.c()), "")
}

// Close is Graph's. Replays under way are finished.
func (g *graph) Close() error {
	if !g.inside.Close() {
		return nil
	}
	const op = "cuGraphExecDestroy"
	if err := g.d.enter(op); err != nil {
		return err
	}
	defer g.d.exit()
	return given(told(C.weft_graph_free(g.d.context(), g.exec), ""))
}
