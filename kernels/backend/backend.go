package backend

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu"
)

// For finds the backend for a device. Host and simulated devices share the CPU backend, which runs
// as Go code by way of [device.Launcher]; accelerators bring their own ([kernels.Computer]).
func For(d device.Device) (kernels.Backend, error) {
	if err := device.Given(d); err != nil {
		return nil, fmt.Errorf("%w: %w", kernels.ErrNoBackend, err)
	}
	if _, ok := d.(device.Launcher); ok {
		return cpu.Backend{}, nil
	}
	if a, ok := d.(*device.Accelerator); ok {
		if c, ok := a.Memory().(kernels.Computer); ok {
			return c.Backend(), nil
		}
	}
	return nil, fmt.Errorf("%w for device %v", kernels.ErrNoBackend, d.ID())
}
