package stillgpu

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// Config is what GPU it is. The zero value is one of compute capability 9.0 with as much memory as
// is asked for, without a library.
type Config struct {
	Arch    int
	Bytes   int  // of memory; 0: no limit
	Library bool // it has a library, which has every product
	Refuses bool // it takes no machine code
}

// Driver is the GPU.
type Driver struct {
	info    cuda.Info
	refuses bool

	mu    sync.Mutex
	next  uintptr
	sizes map[uintptr]int
	taken int
	texts []string
	codes int
}

// New makes one, and what a device is made of: the same, or with a library.
func (c Config) New() (*Driver, cuda.Driver) {
	if c.Arch == 0 {
		c.Arch = 90
	}
	if c.Bytes == 0 {
		c.Bytes = 1 << 50
	}
	d := &Driver{refuses: c.Refuses, next: 1 << 40, sizes: map[uintptr]int{}}
	d.info = cuda.Info{Name: "still", UUID: fmt.Sprintf("still-%p", d), Arch: c.Arch, Driver: 13000, Processor: 132, Memory: c.Bytes, Shared: 99 << 10}
	if c.Library {
		return d, multiplier{d}
	}
	return d, d
}

// Loaded are the texts that a driver would have had to compile, and how often it was given machine
// code that it took.
func (d *Driver) Loaded() (texts []string, codes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.texts, d.codes
}

// Info is [cuda.Driver]'s.
func (d *Driver) Info() cuda.Info { return d.info }

// Alloc is [cuda.Driver]'s.
func (d *Driver) Alloc(n int) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken+n > d.info.Memory {
		return 0, device.ErrMemory
	}
	at := d.next
	d.next += uintptr(n+255) &^ 255
	d.sizes[at] = n
	d.taken += n
	return at, nil
}

// Free is [cuda.Driver]'s.
func (d *Driver) Free(at uintptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken -= d.sizes[at]
	delete(d.sizes, at)
	return nil
}

// Room is [cuda.Driver]'s.
func (d *Driver) Room() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.info.Memory - d.taken, nil
}

// Pin is [cuda.Driver]'s.
func (d *Driver) Pin(n int) ([]byte, error) { return make([]byte, n), nil }

// Unpin is [cuda.Driver]'s.
func (d *Driver) Unpin([]byte) error { return nil }

// Load is [cuda.Driver]'s.
func (d *Driver) Load(image []byte) (cuda.Module, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !bytes.HasPrefix(image, []byte("\x7fELF")):
		d.texts = append(d.texts, string(image))
	case d.refuses:
		return nil, &cuda.Error{Op: "cuModuleLoadDataEx", Code: 209, Err: cuda.ErrImage}
	default:
		d.codes++
	}
	return still{}, nil
}

// Stream is [cuda.Driver]'s.
func (d *Driver) Stream() (cuda.Stream, error) { return still{}, nil }

// Event is [cuda.Driver]'s.
func (d *Driver) Event() (cuda.Event, error) { return timer{}, nil }

// Timer is [cuda.Driver]'s.
func (d *Driver) Timer() (cuda.Timer, error) { return timer{}, nil }

// Export is [cuda.Driver]'s.
func (d *Driver) Export(uintptr) (h cuda.Handle, err error) { return h, cuda.ErrNoDriver }

// Import is [cuda.Driver]'s.
func (d *Driver) Import(cuda.Handle) (uintptr, error) { return 0, cuda.ErrNoDriver }

// Unimport is [cuda.Driver]'s.
func (d *Driver) Unimport(uintptr) error { return cuda.ErrNoDriver }

// Close is [cuda.Driver]'s.
func (d *Driver) Close() error { return nil }

// still is a stream, a module or a graph.
type still struct{}

func (still) Func(name string, _ int) (cuda.Func, error)      { return fn(name), nil }
func (still) Unload() error                                   { return nil }
func (still) CopyIn(uintptr, []byte) error                    { return nil }
func (still) CopyOut(dst []byte, _ uintptr) error             { clear(dst); return nil }
func (still) Copy(_, _ uintptr, _ int) error                  { return nil }
func (still) Zero(uintptr, int) error                         { return nil }
func (still) Run(*cuda.List) error                            { return nil }
func (still) Record(cuda.Event) error                         { return nil }
func (still) Wait(cuda.Event) error                           { return nil }
func (still) Sync() error                                     { return nil }
func (still) Capture(submit func() error) (cuda.Graph, error) { return still{}, submit() }
func (still) Replay(cuda.Graph) error                         { return nil }
func (still) Close() error                                    { return nil }

// timer is an event.
type timer struct{ still }

func (timer) Since(cuda.Timer) (float64, error) { return 0, nil }

// fn is a kernel, or a product without a workspace.
type fn string

func (f fn) Name() string { return string(f) }
func (fn) Workspace() int { return 0 }

// multiplier is a driver with a library.
type multiplier struct{ *Driver }

// Product is [cuda.Multiplier]'s.
func (multiplier) Product(s cuda.ProductSpec) (cuda.Product, error) {
	_, err := s.Filled()
	return fn("product"), err
}
