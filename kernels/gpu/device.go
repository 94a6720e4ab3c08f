package gpu

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/kernels"
)

// Precision is what products of float32 are computed in. Tensors stay float32: those that are
// products' factors, weights among them, are rounded as they are read, and what an optimizer
// updates is the float32. In BF16, and in FP8, functions keep as bfloat16 what products and
// attention make and read within them, and save it so for their backward; what is added up, such as
// residuals and the gradients of parameters, and statistics stay float32. A number that is larger
// than all of bfloat16's, above 3.396e38, becomes infinite where it is rounded.
type Precision uint8

// The precisions.
const (
	Float32 Precision = iota
	TF32              // factors are rounded to 10 bits, sums are float32; Float32 where the driver has no library
	BF16              // factors are rounded to bfloat16, sums are float32; Float32 before compute capability 8.0
	FP8               // as BF16, and factors of large products are rounded to e4m3 where GPU and library can
)

// Config is how a GPU computes. The zero value computes in float32 and keeps released memory.
type Config struct {
	Precision Precision
	Pooled    int64 // bytes of released memory that are kept for reuse; 0: all
	Streams   int   // programs that may run side by side, from 1 to 8; 0: 4
	FP8From   int   // multiplications from which on products in FP8 are of e4m3; 0: where that saves time

	// Hopper has attention in BF16 computed by what compute capability 9.0 has and no other, where
	// it can be. It is an experiment: these kernels have not run on a GPU.
	Hopper bool
}

// ErrConfig is wrapped by what On says of its arguments.
var ErrConfig = errors.New("not a GPU's configuration")

// OldestArch is the compute capability, times ten, that a GPU must have.
const OldestArch = 75

// mostStreams is as many as [gpumem.Config] takes.
const mostStreams = 8

// check says all that is wrong with a configuration and a driver.
func (c Config) check(d cuda.Driver) error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if v := reflect.ValueOf(d); d == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		wrong("the driver is nil; open one with native.Open, or the interpreter's with interpreter.Open (device/cuda/interpreter)")
	} else if i := d.Info(); i.Arch < OldestArch {
		wrong("%s has compute capability %d.%d; kernels need %d.%d or later", i.Name, i.Arch/10, i.Arch%10, OldestArch/10, OldestArch%10)
	}
	if c.Precision > FP8 {
		wrong("there is no Precision %d; use gpu.Float32, gpu.TF32, gpu.BF16 or gpu.FP8", c.Precision)
	}
	if c.FP8From < 0 {
		wrong("FP8From is %d multiplications; use 0 for the estimate, or a positive number", c.FP8From)
	}
	if c.Pooled < 0 {
		wrong("Pooled is %d bytes; use 0 to keep all released memory, or a positive bound", c.Pooled)
	}
	if c.Streams < 0 || c.Streams > mostStreams {
		wrong("Streams is %d; use 1 to %d, or 0 for 4", c.Streams, mostStreams)
	}
	return errors.Join(errs...)
}

// On makes a device of a driver's GPU, with the backend that [kernels.Computer] gives. The driver
// is closed with it. An error that wraps [ErrConfig] has all that is wrong with the arguments, and
// leaves the driver as it was; after any other it is closed.
func On(d cuda.Driver, id device.ID) (*device.Accelerator, error) { return Config{}.On(d, id) }

// On is the function On with a configuration.
func (c Config) On(d cuda.Driver, id device.ID) (*device.Accelerator, error) {
	if err := c.check(d); err != nil {
		return nil, err
	}
	g, err := gpumem.Config{Streams: c.Streams}.NewGPU(d)
	if err != nil {
		return nil, err
	}
	m := &memory{GPU: g, backend: newBackend(g, c)}
	g.Watch(&m.backend.faults)
	m.backend.dev = device.Over(id, m, c.Pooled)
	return m.backend.dev, nil
}

// memory is a GPU's that comes with what computes on it.
type memory struct {
	*gpumem.GPU
	backend *backend
}

var _ kernels.Computer = (*memory)(nil)

// Backend is [kernels.Computer]'s.
func (m *memory) Backend() kernels.Backend { return m.backend }

// Close waits for what is under way; what comes later is told that the device is closed.
func (m *memory) Close() error {
	return errors.Join(m.backend.Close(), m.GPU.Close())
}

var _ device.Folder = (*memory)(nil)

// folds are the kernels, by their elements.
var folds = [...]string{device.Float32: "fold_f32", device.Float64: "fold_f64", device.Int32: "fold_i32", device.Int64: "fold_i64", device.BFloat16: "fold_b"}

const foldThreads = 256 // of a block, an element each

// Fold is [device.Folder]'s.
func (m *memory) Fold(fn uint8, factor float64, d device.Dtype, n int, to uintptr, from ...uintptr) error {
	if len(from) == 0 || len(from) > device.MostFolded || d == device.Invalid || int(d) >= len(folds) || n < 0 {
		return fmt.Errorf("%w: a fold of %d arrays of %d elements of %v", kernels.ErrNoBackend, len(from), n, d)
	}
	if n == 0 {
		return nil
	}
	b := m.backend
	if err := b.enter("fold"); err != nil {
		return err
	}
	defer b.inside.Leave()
	f, err := b.kernel("fold", folds[d], 0)
	if err != nil {
		return err
	}
	var l cuda.List
	l.Add(f, [3]uint32{uint32((n + foldThreads - 1) / foldThreads), 1, 1}, [3]uint32{foldThreads, 1, 1}, 0)
	l.Addr(to)
	var all [device.MostFolded]uintptr
	copy(all[:], from)
	for _, at := range all {
		l.Addr(at)
	}
	l.U64(math.Float64bits(factor))
	l.U64(uint64(n))
	l.U32(uint32(len(from)))
	l.U32(uint32(fn))
	return m.Compute(func(s cuda.Stream) error { return s.Run(&l) }, false, to, from...)
}
