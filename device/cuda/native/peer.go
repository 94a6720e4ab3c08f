//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "calls.h"

#cgo noescape weft_reach
*/
import "C"

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

var (
	_ cuda.Neighbor = (*driver)(nil)
	_ cuda.Courier  = (*stream)(nil)
)

// Reach is [cuda.Neighbor]'s.
func (d *driver) Reach(other cuda.Driver) (bool, error) {
	const op = "cuCtxEnablePeerAccess"
	o, ok := other.(*driver)
	if !ok {
		return false, nil
	}
	if err := d.enter(op); err != nil {
		return false, err
	}
	defer d.exit()
	if err := o.enter(op); err != nil {
		return false, err
	}
	defer o.exit()
	if o.context() == d.context() {
		return true, nil
	}
	var can C.int
	err := told(C.weft_reach(d.context(), C.CUdevice(d.dev), o.context(), C.CUdevice(o.dev), &can), "")
	return can != 0, err
}

// CopyTo is [cuda.Courier]'s.
func (s *stream) CopyTo(other cuda.Driver, dst, src uintptr, n int) error {
	const op = "cuMemcpyPeerAsync"
	o, ok := other.(*driver)
	if !ok {
		return &cuda.Error{Op: op, Text: "the memory is another kind of driver's", Err: device.ErrElsewhere}
	}
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.exit()
	if err := o.enter(op); err != nil {
		return err
	}
	defer o.exit()
	if n == 0 {
		return nil
	}
	return told(C.weft_copy_to(s.d.context(), C.CUdeviceptr(dst), o.context(), C.CUdeviceptr(src), C.size_t(n), s.c()), "")
}
