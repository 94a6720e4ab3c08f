package device

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
)

// Device is one memory and the pool over it.
type Device interface {
	ID() ID
	// Alloc gives a buffer of n ≥ 0 bytes with one reference, which the caller owns. The content is
	// undefined. Fails with ErrMemory when the device is full and ErrClosed after Close.
	Alloc(n int) (*Buffer, error)
	// Upload copies host bytes into a buffer of this device, starting at byte off of the buffer.
	Upload(dst *Buffer, off int, src []byte) error
	// Download copies bytes of a buffer of this device, starting at byte off, to the host.
	Download(dst []byte, src *Buffer, off int) error
	// CopyWithin copies all of src to dst, both on this device, of equal length.
	CopyWithin(dst, src *Buffer) error
	// Stats tells what is alive. After everything was released, Live and LiveBytes are 0.
	Stats() Stats
	// Close frees the pool. Buffers that are alive stay valid until they are released.
	Close() error
}

// Given says why d is none: it is nil, or a nil pointer.
func Given(d Device) error {
	if d == nil {
		return fmt.Errorf("%w: the device is nil", ErrNoDevice)
	}
	if v := reflect.ValueOf(d); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: the device is nil, a %T", ErrNoDevice, d)
	}
	return nil
}

// Launcher is a device on which Go code can play the part of a kernel: the CPU and the simulated
// devices.
type Launcher interface {
	Device
	// Launch runs fn with the memory of bufs, in order. Every buffer must be alive and lie on this
	// device. mem is only valid during the call. What fn returns is returned. fn must not write
	// what is [Buffer.ReadOnly].
	Launch(bufs []*Buffer, fn func(mem [][]byte) error) error
}

// Stats counts a device's buffers.
type Stats struct {
	Live        int64 // buffers that are allocated and not released; disowned ones are not counted
	LiveBytes   int64 // their bytes, as asked for
	Pooled      int64 // released blocks kept for reuse
	PooledBytes int64
	Allocs      int64 // calls of Alloc that succeeded
	Reused      int64 // those served from the pool
	UsedBytes   int64 // of the blocks that buffers lie in, disowned ones too, and of what work needs for itself
	PeakBytes   int64 // most that UsedBytes was
	SharedBytes int64 // of memory that other processes can be shown, kept ones too
}

// Copy copies all of src to dst, which must have the same length and may lie on another device of
// the same worker. Between two non-host devices the bytes pass through the host, in pieces, where
// those do not reach one another.
func Copy(dst, src *Buffer) error {
	if dst.Len() != src.Len() {
		return &Error{dst.dev().ID(), "copy", ErrBounds}
	}
	if dst.Device() == src.Device() {
		return dst.Device().CopyWithin(dst, src)
	}
	if host, err := src.Host(); err == nil {
		defer runtime.KeepAlive(src)
		return dst.Device().Upload(dst, 0, host)
	}
	if host, err := dst.Host(); err == nil && !dst.ReadOnly() {
		defer runtime.KeepAlive(dst)
		return src.Device().Download(host, src, 0)
	}
	if done, err := directly(dst, src); done || err != nil {
		return err
	}
	return through(dst, src)
}

// copyBytes is how much host memory a copy between accelerators goes through at a time; there are
// two such pieces.
const copyBytes = 4 << 20

// through copies by way of the host: while a piece goes up, the next one comes down.
func through(dst, src *Buffer) error {
	n := src.Len()
	piece := min(n, copyBytes)
	stage, err := host.Alloc(min(n, 2*piece))
	if err != nil {
		return err
	}
	defer stage.Release() //nolint:errcheck // the one reference from Alloc
	at := func(off int) []byte { return stage.mem()[off/max(piece, 1)%2*piece:][:min(piece, n-off)] }
	if err := src.Device().Download(at(0), src, 0); err != nil || n == 0 {
		return errors.Join(err, dst.Device().Upload(dst, 0, nil)) // which tells whether it is alive
	}
	for off := 0; off < n; off += piece {
		next := make(chan error, 1)
		go func() {
			if off+piece < n {
				next <- src.Device().Download(at(off+piece), src, off+piece)
				return
			}
			next <- nil
		}()
		if err := errors.Join(dst.Device().Upload(dst, off, at(off)), <-next); err != nil {
			return err
		}
	}
	return nil
}
