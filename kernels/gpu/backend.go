package gpu

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gate"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu/internal/ahead"
	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

// backend is a [kernels.Backend] for one GPU.
type backend struct {
	gpu    *gpumem.GPU
	dev    *device.Accelerator
	cfg    Config
	faults faults
	inside gate.Gate // of runs, and of what loads kernels
	tally  tally

	// Sequences are made under lowering, and lean ones, which give libraries no workspace, under it
	// alone.
	lowering sync.RWMutex
	lean     bool

	mu      sync.Mutex
	images  map[string]cuda.Module // of package cu, by file
	refused map[string]error       // why the driver did not take one of them that others stand in for
	funcs   map[funcKey]cuda.Func
	made    made
	graphs  graphs
	written written
}

type funcKey struct {
	module, name string
	shared       int
}

func newBackend(g *gpumem.GPU, c Config) *backend {
	b := &backend{gpu: g, cfg: c, images: map[string]cuda.Module{}, refused: map[string]error{}, funcs: map[funcKey]cuda.Func{}}
	b.made.gpu, b.made.tally, b.made.ahead = g, &b.tally, ahead.Open(g.Driver().Info().Arch)
	b.graphs.gpu, b.graphs.tally = g, &b.tally
	return b
}

func (b *backend) Name() string { return "cuda" }

var _ kernels.Recorder = (*backend)(nil)

// ownBuffer is how many bytes take a GPU as long to write as the host to launch a kernel.
const ownBuffer = 16 << 20

// OwnBuffer is [kernels.Recorder]'s.
func (b *backend) OwnBuffer() int { return ownBuffer }

// kernel finds a kernel of package cu, whose launches have up to shared bytes of dynamic shared
// memory. Its module is loaded when it is first asked for.
func (b *backend) kernel(module, name string, shared int) (cuda.Func, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := funcKey{module, name, shared}
	if f := b.funcs[key]; f != nil {
		return f, nil
	}
	m := b.images[module]
	if m == nil {
		var err error
		if m, err = b.image(module); err != nil {
			return nil, fmt.Errorf("module %s: %w", module, err)
		}
		b.images[module] = m
	}
	f, err := m.Func(name, shared)
	if err != nil {
		return nil, fmt.Errorf("kernel %s of module %s: %w", name, module, err)
	}
	b.funcs[key] = f
	return f, nil
}

// optional is kernel of a module that others stand in for. The driver is asked for it once: it may
// compile for long until it refuses a module. Memory may be there another time.
func (b *backend) optional(module, name string, shared int) (cuda.Func, error) {
	b.mu.Lock()
	err := b.refused[module]
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f, err := b.kernel(module, name, shared)
	if err != nil && !errors.Is(err, device.ErrMemory) && !errors.Is(err, device.ErrLost) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refused[module] = err
	}
	return f, err
}

// image is Load, which is counted.
func (b *backend) image(module string) (cuda.Module, error) {
	d := b.gpu.Driver()
	m, compiled, refused, err := Load(d, module)
	switch {
	case err != nil || d.Info().Simulated:
	case !compiled:
		b.tally.add(workModule, byCubin, "", nil)
	case refused != nil:
		b.tally.add(workModule, byPTX, whyFailedCubin, refused)
	default:
		b.tally.add(workModule, byPTX, whyNoCubin, nil)
	}
	return m, err
}

// Load loads one of [Modules]: machine code or, where there is none for this GPU, or the driver
// does not take it, PTX, which the driver compiles then. refused is why it took no machine code.
func Load(d cuda.Driver, module string) (m cuda.Module, compiled bool, refused, err error) {
	text := cu.Module(module)
	if text == nil {
		return nil, false, nil, fmt.Errorf("%w: there is no such module", kernels.ErrNoBackend)
	}
	if i := d.Info(); !i.Simulated {
		if cubin := cu.Cubin(module, i.Arch); cubin != nil {
			if m, refused = d.Load(cubin); refused == nil {
				return m, false, nil, nil
			}
		}
	}
	m, err = d.Load(text)
	return m, true, refused, err
}

// Modules are the kernels that were compiled beforehand: PTX, which must not be changed, by name.
func Modules() iter.Seq2[string, []byte] {
	return func(yield func(name string, ptx []byte) bool) {
		for _, name := range slices.Sorted(maps.Keys(cu.Modules())) {
			if !yield(name, cu.Module(name)) {
				return
			}
		}
	}
}

// enter begins what [gate.Gate.Leave] of inside ends.
func (b *backend) enter(op string) error {
	if !b.inside.Enter() {
		return &device.Error{Device: b.dev.ID(), Op: op, Err: device.ErrClosed}
	}
	return nil
}

// Close waits for what is under way: no kernel is unloaded before.
func (b *backend) Close() error {
	b.inside.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := []error{b.gpu.Sync(), b.graphs.Close(), b.made.Close()}
	for _, m := range b.images {
		errs = append(errs, m.Unload())
	}
	clear(b.images)
	clear(b.funcs)
	return errors.Join(errs...)
}

// lower makes the launches of an instruction, whose operands Infer has accepted. It is cheap where
// the kernels are there already: an optimizer's step is a new instruction each time.
func (b *backend) lower(i kernels.Instr, in, out []kernels.Type) (*code, error) {
	switch i := i.(type) {
	case kernels.Map, kernels.Unary, kernels.Binary, kernels.Reduce, kernels.MaxGrad, kernels.SumSquares, kernels.NonFinite,
		kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat, kernels.Cast, kernels.Fill:
		return b.generate(i, in)
	case kernels.Narrow:
		return b.lowerNarrow(i, in, out)
	case kernels.Viewed:
		switch of := i.Of.(type) {
		case kernels.MatMul:
			return b.lowerProduct(of, in, i.In, out)
		case kernels.MatMulThen:
			return b.lowerProductThen(of, in, i.In, out, false)
		case kernels.Attention, kernels.AttentionGrad:
			return b.lowerAttention(of, in, out, i.In)
		}
		return b.generate(i, in)
	case kernels.MatMul:
		return b.lowerProduct(i, in, nil, out)
	case kernels.MatMulThen:
		return b.lowerProductThen(i, in, nil, out, false)
	case kernels.Attention, kernels.AttentionGrad:
		return b.lowerAttention(i, in, out, nil)
	case kernels.Conv2d, kernels.Conv2dGradX, kernels.Conv2dGradW, kernels.Im2col, kernels.Col2im:
		return b.lowerConv(i, in, out)
	case kernels.MaxPool2d, kernels.MaxPool2dGrad, kernels.AvgPool2d, kernels.AvgPool2dGrad:
		return b.lowerPool(i, in, out)
	case kernels.Update, kernels.UpdateMany, kernels.OnRows:
		return b.lowerOptim(i, in, out)
	case kernels.Random, kernels.Dropout:
		return b.lowerRandom(i, in, out)
	}
	op, ok := b.rowOp(i, in, out)
	if !ok {
		return nil, unknown(i)
	}
	if err := countable(i, in); err != nil {
		return nil, err
	}
	return op.lower()
}

// unknown is the error of an instruction that has no kernel.
func unknown(i kernels.Instr) error {
	return fmt.Errorf("%w: GPUs do not know %v", kernels.ErrNoBackend, i)
}
