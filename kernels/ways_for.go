package kernels

import "github.com/weft-project/weft/device"

// Ways says how the backend of a device has worked; nil where it does not count.
func Ways(d device.Device) []Way {
	b, err := For(d)
	if s, ok := b.(Surveyor); ok && err == nil {
		return s.Ways()
	}
	return nil
}
