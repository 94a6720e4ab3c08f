package host

import (
	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// Zeros is a new buffer of so many bytes, all 0, and these bytes.
func Zeros(n int) (*device.Buffer, []byte, error) {
	b, err := device.Host().Alloc(n)
	if err != nil {
		return nil, nil, err
	}
	mem, err := b.Host()
	if err != nil {
		Release(b)
		return nil, nil, err
	}
	clear(mem)
	return b, mem, nil
}

// Copy is a copy of a buffer of any device.
func Copy(of *device.Buffer) (*device.Buffer, error) {
	b, err := device.Host().Alloc(of.Len())
	if err != nil {
		return nil, err
	}
	if err := device.Copy(b, of); err != nil {
		Release(b)
		return nil, err
	}
	return b, nil
}

// CopyTo is a copy of n bytes of a buffer of the host's, from off on, on a device.
func CopyTo(to device.Device, of *device.Buffer, off, n int) (*device.Buffer, error) {
	mem, err := of.Host()
	if err != nil {
		return nil, err
	}
	b, err := to.Alloc(n)
	if err != nil {
		return nil, err
	}
	if err := to.Upload(b, 0, mem[off:off+n]); err != nil {
		Release(b)
		return nil, err
	}
	return b, nil
}

// Part is these bytes for a device: where they lie, if that is the host, or a copy. Where they lie
// they hold the whole, and are read-only.
func Part(to device.Device, of *device.Buffer, off, n int) (*device.Buffer, error) {
	if to != device.Host() || n == 0 {
		return CopyTo(to, of, off, n)
	}
	mem, err := of.Host()
	if err != nil {
		return nil, err
	}
	whole := of.Retain()
	return device.Foreign(mem[off:off+n], nil, func() { Release(whole) }), nil
}

// Read copies a tensor's value to where to begins, from whichever device, and gives these bytes.
func Read(to []byte, t *autodiff.Tensor) ([]byte, error) {
	b, err := t.Acquire()
	if err != nil {
		return nil, err
	}
	defer Release(b)
	to = to[:b.Len()]
	return to, b.Device().Download(to, b, 0)
}

// Gradient makes a buffer a gradient of p, on a device, times a factor. It takes the buffer over.
func Gradient(p *autodiff.Tensor, b *device.Buffer, on device.Device, factor float64, owner *autodiff.Arena) (*autodiff.Tensor, error) {
	elsewhere := b.Device() != on
	grad := autodiff.Wrap(p.Type(), b, owner)
	if elsewhere {
		grad = autodiff.To(grad, on)
	}
	if factor != 1 {
		grad = autodiff.Scale(grad, factor)
	}
	return grad, grad.Err()
}

// Release gives back a reference to each buffer, but for nil ones.
func Release(bufs ...*device.Buffer) {
	for _, b := range bufs {
		if b != nil {
			_ = b.Release() // the caller's
		}
	}
}

// Forget is Release, and makes them nil.
func Forget(bufs []*device.Buffer) {
	Release(bufs...)
	clear(bufs)
}
