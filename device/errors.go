package device

import (
	"errors"
	"fmt"
)

// What can go wrong with devices and buffers; every error of this package wraps one of these.
var (
	ErrBadID     = errors.New("bad device id")
	ErrBadShape  = errors.New("bad shape")
	ErrBadMap    = errors.New("invalid device map")
	ErrNoDevice  = errors.New("no such device")
	ErrReleased  = errors.New("buffer was released")
	ErrNotHost   = errors.New("memory is not visible to the host")
	ErrElsewhere = errors.New("buffer lies on another device")
	ErrBounds    = errors.New("out of the buffer's bounds")
	ErrReadOnly  = errors.New("memory of another process cannot be written")
	ErrMemory    = errors.New("out of device memory")
	ErrClosed    = errors.New("device is closed")
	ErrLost      = errors.New("device is lost") // after a fault that it does not come back from
)

// Error says which device failed at what.
type Error struct {
	Device ID
	Op     string // "alloc", "upload", …
	Err    error  // wraps a sentinel above
}

func (e *Error) Error() string { return fmt.Sprintf("device %v: %s: %v", e.Device, e.Op, e.Err) }

// Unwrap lets errors.Is find the sentinel.
func (e *Error) Unwrap() error { return e.Err }
