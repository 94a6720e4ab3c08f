package backend

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Ways says how the backend of a device has worked; nil where it does not count.
func Ways(d device.Device) []kernels.Way {
	b, err := For(d)
	if s, ok := b.(kernels.Surveyor); ok && err == nil {
		return s.Ways()
	}
	return nil
}
