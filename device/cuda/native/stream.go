//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "calls.h"

#cgo noescape weft_copy_in
#cgo noescape weft_copy_out
#cgo noescape weft_run
#cgo nocallback weft_run
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

// stream is a queue of work.
type stream struct {
	d      *driver
	s      cu.Stream
	inside gate.Gate

	mu      sync.Mutex
	scratch []C.weft_launch // of Run
}

func (s *stream) c() C.CUstream { return *(*C.CUstream)(unsafe.Pointer(&s.s)) }

// Stream is Driver's.
func (d *driver) Stream() (cuda.Stream, error) {
	s := &stream{d: d}
	err := d.within("cuStreamCreate", func() (err error) {
		s.s, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// enter begins a call, which exit ends: neither the stream nor its driver is closed meanwhile.
func (s *stream) enter(op string) error {
	if err := s.d.enter(op); err != nil {
		return err
	}
	if !s.inside.Enter() {
		s.d.exit()
		return &cuda.Error{Op: op, Err: device.ErrClosed}
	}
	return nil
}

func (s *stream) exit() {
	s.inside.Leave()
	s.d.exit()
}

// CopyIn is Stream's.
func (s *stream) CopyIn(at uintptr, src []byte) error {
	const op = "cuMemcpyHtoDAsync"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	if len(src) == 0 {
		return nil
	}
	return told(C.weft_copy_in(s.d.context(), C.CUdeviceptr(at), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)), s.c()), "")
}

// CopyOut is Stream's.
func (s *stream) CopyOut(dst []byte, at uintptr) error {
	const op = "cuMemcpyDtoHAsync"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	if len(dst) == 0 {
		return nil
	}
	return told(C.weft_copy_out(s.d.context(), unsafe.Pointer(unsafe.SliceData(dst)), C.CUdeviceptr(at), C.size_t(len(dst)), s.c()), "")
}

// Copy is Stream's.
func (s *stream) Copy(dst, src uintptr, n int) error {
	const op = "cuMemcpyDtoDAsync"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	if n == 0 {
		return nil
	}
	return told(C.weft_copy(s.d.context(), C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n), s.c()), "")
}

// Zero is Stream's.
func (s *stream) Zero(at uintptr, n int) error {
	const op = "cuMemsetD8Async"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	if n == 0 {
		return nil
	}
	return told(C.weft_zero(s.d.context(), C.CUdeviceptr(at), C.size_t(n), s.c()), "")
}

// Sync is Stream's.
func (s *stream) Sync() error {
	const op = "cuStreamSynchronize"
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	return told(C.weft_sync(s.d.context(), s.c()), "")
}

// Close is Stream's. Work under way is finished by the driver.
func (s *stream) Close() error {
	if !s.inside.Close() {
		return nil
	}
	return given(s.d.within("cuStreamDestroy", func() error { return s.s.Destroy() }))
}
