//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "calls.h"

#cgo noescape weft_captured
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// event is a point in a stream.
type event struct {
	d      *driver
	e      cu.Event
	closed atomic.Bool
}

func (e *event) c() C.CUevent { return *(*C.CUevent)(unsafe.Pointer(&e.e)) }

// Event is Driver's.
func (d *driver) Event() (cuda.Event, error) {
	e := &event{d: d}
	err := d.within("cuEventCreate", func() (err error) {
		e.e, err = cu.MakeEvent(cu.DefaultEvent)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// mine is an event of this driver that is not closed.
func (d *driver) mine(op string, e cuda.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own.d != d {
		return nil, &cuda.Error{Op: op, Text: "the event is another GPU's, or another driver's", Err: device.ErrElsewhere}
	}
	if own.closed.Load() {
		return nil, &cuda.Error{Op: op, Text: "the event", Err: device.ErrClosed}
	}
	return own, nil
}

// Record is Stream's.
func (s *stream) Record(e cuda.Event) error {
	const op = "cuEventRecord"
	own, err := s.d.mine(op, e)
	if err == nil {
		err = s.open(op)
	}
	if err != nil {
		return err
	}
	return failure(op, int(C.weft_record(s.d.context(), own.c(), s.c())), "")
}

// Wait is Stream's.
func (s *stream) Wait(e cuda.Event) error {
	const op = "cuStreamWaitEvent"
	own, err := s.d.mine(op, e)
	if err == nil {
		err = s.open(op)
	}
	if err != nil {
		return err
	}
	return failure(op, int(C.weft_wait(s.d.context(), s.c(), own.c())), "")
}

// Sync is Event's.
func (e *event) Sync() error {
	const op = "cuEventSynchronize"
	own, err := e.d.mine(op, e)
	if err == nil {
		err = e.d.open(op)
	}
	if err != nil {
		return err
	}
	return failure(op, int(C.weft_event_sync(e.d.context(), own.c())), "")
}

// Since is Event's.
func (e *event) Since(from cuda.Event) (ms float64, err error) {
	const op = "cuEventElapsedTime"
	begin, err := e.d.mine(op, from)
	if err == nil {
		_, err = e.d.mine(op, e)
	}
	if err != nil {
		return 0, err
	}
	err = e.d.within(op, func() (err error) {
		ms, err = begin.e.Elapsed(e.e)
		return err
	})
	return ms, err
}

// Close is Event's.
func (e *event) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return e.d.within("cuEventDestroy", func() error { return cu.DestroyEvent(&e.e) })
}

// graph is recorded launches.
type graph struct {
	d      *driver
	exec   C.CUgraphExec
	closed atomic.Bool
}

// Capture is Stream's. Nobody else may use the stream until it returns: what they submit would be recorded too.
func (s *stream) Capture(submit func() error) (cuda.Graph, error) {
	if err := s.open("cuStreamBeginCapture"); err != nil {
		return nil, err
	}
	if r := C.weft_capture(s.d.context(), s.c()); r != 0 {
		return nil, failure("cuStreamBeginCapture", int(r), "")
	}
	g := &graph{d: s.d}
	ended := false
	end := func(keep C.int) error {
		ended = true
		return failure("cuStreamEndCapture", int(C.weft_captured(s.d.context(), s.c(), keep, &g.exec)), "")
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

// Replay is Stream's.
func (s *stream) Replay(g cuda.Graph) error {
	const op = "cuGraphLaunch"
	own, ok := g.(*graph)
	if !ok || own.d != s.d {
		return &cuda.Error{Op: op, Text: "the graph is another GPU's, or another driver's", Err: device.ErrElsewhere}
	}
	if own.closed.Load() {
		return &cuda.Error{Op: op, Text: "the graph", Err: device.ErrClosed}
	}
	if err := s.open(op); err != nil {
		return err
	}
	return failure(op, int(C.weft_replay(s.d.context(), own.exec, s.c())), "")
}

// Close is Graph's. Replays under way are finished.
func (g *graph) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	if err := g.d.open("cuGraphExecDestroy"); err != nil {
		return err
	}
	return failure("cuGraphExecDestroy", int(C.weft_graph_free(g.d.context(), g.exec)), "")
}
