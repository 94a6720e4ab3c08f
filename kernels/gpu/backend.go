package gpu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// backend is a [kernels.Backend] for one GPU.
type backend struct {
	gpu    *cuda.GPU
	dev    *device.Accelerator
	cfg    Config
	faults faults

	mu     sync.Mutex
	images map[string]cuda.Module // of package cu, by file
	funcs  map[funcKey]cuda.Func
	made   made
	graphs graphs
}

type funcKey struct {
	module, name string
	shared       int
}

func newBackend(g *cuda.GPU, c Config) *backend {
	b := &backend{gpu: g, cfg: c, images: map[string]cuda.Module{}, funcs: map[funcKey]cuda.Func{}}
	b.made.gpu = g
	b.graphs.gpu = g
	return b
}

func (b *backend) Name() string { return "cuda" }

// kernel finds a kernel of package cu, whose launches have up to shared bytes of dynamic shared memory. Its module is loaded when it is first
// asked for.
func (b *backend) kernel(module, name string, shared int) (cuda.Func, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := funcKey{module, name, shared}
	if f := b.funcs[key]; f != nil {
		return f, nil
	}
	m := b.images[module]
	if m == nil {
		text, err := image(module)
		if err != nil {
			return nil, err
		}
		if m, err = b.gpu.Driver().Load(text); err != nil {
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

func (b *backend) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := []error{b.graphs.close(), b.made.close()}
	for _, m := range b.images {
		errs = append(errs, m.Unload())
	}
	clear(b.images)
	clear(b.funcs)
	return errors.Join(errs...)
}

// lower makes the launches of an instruction, whose operands Infer has accepted. It is cheap where the kernels are there already:
// an optimizer's step is a new instruction each time.
func (b *backend) lower(i kernels.Instr, in, out []kernels.Type) (*code, error) {
	switch i := i.(type) {
	case kernels.Viewed:
		return b.lowerViewed(i, in, out)
	case kernels.Map, kernels.Unary, kernels.Binary, kernels.Reduce:
		return b.lowerMap(i, in, nil, out)
	case kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat, kernels.Cast, kernels.Fill:
		return b.lowerMove(i, in, nil, out)
	case kernels.Softmax, kernels.SoftmaxGrad, kernels.CrossEntropy, kernels.CrossEntropyGrad, kernels.Normalize, kernels.NormalizeGrad,
		kernels.LayerNorm, kernels.LayerNormGrad, kernels.MaxGrad, kernels.Gather, kernels.ScatterAdd:
		return b.lowerRows(i, in, out)
	case kernels.Update, kernels.UpdateMany, kernels.OnRows, kernels.SumSquares, kernels.NonFinite:
		return b.lowerOptim(i, in, out)
	case kernels.Random, kernels.Dropout:
		return b.lowerRandom(i, in, out)
	case kernels.MatMul:
		return b.lowerProduct(i, in, nil, out)
	case kernels.MatMulThen:
		return b.lowerProductThen(i, in, nil, out)
	case kernels.Conv2d, kernels.Conv2dGradX, kernels.Conv2dGradW, kernels.Im2col, kernels.Col2im:
		return b.lowerConv(i, in, out)
	case kernels.MaxPool2d, kernels.MaxPool2dGrad, kernels.AvgPool2d, kernels.AvgPool2dGrad:
		return b.lowerPool(i, in, out)
	}
	return nil, unknown(i)
}

// lowerViewed is lower for what reads operands through views.
func (b *backend) lowerViewed(i kernels.Viewed, in, out []kernels.Type) (*code, error) {
	seen := i.Seen(in)
	switch of := i.Of.(type) {
	case kernels.Map:
		return b.lowerMap(of, seen, i.In, out)
	case kernels.MatMul:
		return b.lowerProduct(of, seen, i.In, out)
	case kernels.MatMulThen:
		return b.lowerProductThen(of, seen, i.In, out)
	}
	return b.lowerMove(i.Of, seen, i.In, out)
}

// unknown is the error of an instruction that has no kernel.
func unknown(i kernels.Instr) error {
	return fmt.Errorf("%w: GPUs do not know %v", kernels.ErrNoBackend, i)
}
