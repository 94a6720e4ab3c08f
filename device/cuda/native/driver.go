//go:build gpu && linux && (amd64 || arm64)

package native

/*
#include "calls.h"

#cgo noescape weft_pin
#cgo noescape weft_export
#cgo noescape weft_import
*/
import "C"

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gate"
)

// driver is a GPU in use.
type driver struct {
	dev    cu.Device
	ctx    cu.CUContext
	info   cuda.Info
	inside gate.Gate    // of all calls
	loaded sync.RWMutex // for reading: launches name modules; for writing: one is unloaded

	mu       sync.Mutex
	multiply *multiplier // once a product was asked for
}

var _ cuda.Multiplier = (*driver)(nil)

// context is the driver's context as our own calls take it: package cu's types are structures of
// one pointer, of types that are its own.
func (d *driver) context() C.CUcontext { return *(*C.CUcontext)(unsafe.Pointer(&d.ctx)) }

// enter begins a call, which exit ends: the driver is closed before, or after.
func (d *driver) enter(op string) error {
	if !d.inside.Enter() {
		return &cuda.Error{Op: op, Err: device.ErrClosed}
	}
	return nil
}

func (d *driver) exit() { d.inside.Leave() }

// within makes a call of package cu, which wants the context on this thread.
func (d *driver) within(op string, call func() error) error {
	if err := d.enter(op); err != nil {
		return err
	}
	defer d.exit()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		return called("cuCtxSetCurrent", err)
	}
	return called(op, call())
}

// Info is Driver's.
func (d *driver) Info() cuda.Info { return d.info }

// Alloc is Driver's.
func (d *driver) Alloc(n int) (uintptr, error) {
	var at cu.DevicePtr
	err := d.within("cuMemAlloc", func() (err error) {
		at, err = cu.MemAlloc(int64(n))
		return err
	})
	return uintptr(at), err
}

// Free is Driver's.
func (d *driver) Free(at uintptr) error {
	return given(d.within("cuMemFree", func() error { return cu.MemFree(cu.DevicePtr(at)) }))
}

// given is what giving something back says: of a lost GPU nothing, as nothing is left of it, and
// whoever worked with it has been told.
func given(err error) error {
	if errors.Is(err, device.ErrLost) {
		return nil
	}
	return err
}

// Room is Driver's.
func (d *driver) Room() (int, error) {
	var free int64
	err := d.within("cuMemGetInfo", func() (err error) {
		free, _, err = cu.MemInfo()
		return err
	})
	return int(free), err
}

// Pin is Driver's.
func (d *driver) Pin(n int) ([]byte, error) {
	if err := d.enter("cuMemHostAlloc"); err != nil {
		return nil, err
	}
	defer d.exit()
	var p unsafe.Pointer
	if err := told(C.weft_pin(d.context(), &p, C.size_t(n)), ""); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Unpin is Driver's.
func (d *driver) Unpin(mem []byte) error {
	return given(d.within("cuMemFreeHost", func() error { return cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(mem))) }))
}

// Export is Driver's.
func (d *driver) Export(at uintptr) (h cuda.Handle, err error) {
	if err := d.enter("cuIpcGetMemHandle"); err != nil {
		return h, err
	}
	defer d.exit()
	err = told(C.weft_export(d.context(), C.CUdeviceptr(at), unsafe.Pointer(&h)), "")
	return h, err
}

// Import is Driver's. Memory of the own process cannot be imported.
func (d *driver) Import(h cuda.Handle) (uintptr, error) {
	if err := d.enter("cuIpcOpenMemHandle"); err != nil {
		return 0, err
	}
	defer d.exit()
	var at C.CUdeviceptr
	err := told(C.weft_import(d.context(), &at, unsafe.Pointer(&h)), "")
	return uintptr(at), err
}

// Range is [cuda.Ranger]'s.
func (d *driver) Range(at uintptr) (n int, err error) {
	err = d.within("cuMemGetAddressRange", func() error {
		size, base, err := cu.DevicePtr(at).AddressRange()
		n = int(size) - int(at-uintptr(base))
		return err
	})
	return n, err
}

// Unimport is Driver's.
func (d *driver) Unimport(at uintptr) error {
	if err := d.enter("cuIpcCloseMemHandle"); err != nil {
		return err
	}
	defer d.exit()
	return given(told(C.weft_unimport(d.context(), C.CUdeviceptr(at)), ""))
}

// Close is Driver's: after the calls under way. What was made and not closed is lost with the last
// driver of this GPU in the process.
func (d *driver) Close() error {
	if !d.inside.Close() {
		return nil
	}
	multiply := d.closeMultiplier()
	return errors.Join(given(multiply), given(called("cuDevicePrimaryCtxRelease", d.dev.ReleasePrimaryCtx())))
}
