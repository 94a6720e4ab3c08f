//go:build gpu && cgo && linux && (amd64 || arm64)

package native

import (
	"unsafe"

	"github.com/weft-project/weft/device/cuda"
)

var (
	_ cuda.Lender  = (*driver)(nil)
	_ cuda.Handled = (*stream)(nil)
)

// Within is [cuda.Lender]'s.
func (d *driver) Within(call func() error) error {
	var err error
	if outside := d.within("cuCtxSetCurrent", func() error { err = call(); return nil }); outside != nil {
		return outside
	}
	return err
}

// Handle is [cuda.Handled]'s.
func (s *stream) Handle() uintptr { return uintptr(unsafe.Pointer(s.c())) }
