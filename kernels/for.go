package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// For finds the backend for a device. Host and simulated devices share the CPU backend, which runs as Go code by
// way of [device.Launcher]; accelerators bring their own ([Computer]).
func For(d device.Device) (Backend, error) {
	if err := device.Given(d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBackend, err)
	}
	if _, ok := d.(device.Launcher); ok {
		return cpuBackend{}, nil
	}
	if a, ok := d.(*device.Accelerator); ok {
		if c, ok := a.Memory().(Computer); ok {
			return c.Backend(), nil
		}
	}
	return nil, fmt.Errorf("%w for device %v", ErrNoBackend, d.ID())
}
