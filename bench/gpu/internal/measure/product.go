package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
)

// precisions are those of products, as cases call them.
var precisions = []struct {
	name string
	is   gpu.Precision
}{{"f32", gpu.Float32}, {"tf32", gpu.TF32}, {"bf16", gpu.BF16}, {"fp8", gpu.FP8}}

// product measures products of float32 in each precision, and the library's alone, of bfloat16 and
// of e4m3.
func (b *bench) product(context.Context) (err error) {
	n := b.matrix
	flops := 2 * float64(n) * float64(n) * float64(n)
	for _, p := range precisions {
		err = errors.Join(err, b.report(line{Case: "product-" + p.name, Mode: "tensors of float32"}, func(l *line) error {
			return b.counted("product-"+p.name, p.is, func(dev *device.Accelerator, t *clock) error {
				in := []kernels.Type{floats(n, n), floats(n, n)}
				ins, err := noisy(dev, 4, in...)
				if err != nil {
					return err
				}
				l.MS, err = repeated(dev, t, kernels.MatMul{}, in, ins, nil)
				l.TFlops = flops / l.MS / 1e9
				return err
			})
		}))
	}
	if b.at == places.Interpreter { // which has no library
		return err
	}
	for _, p := range []struct {
		name, mode string
		spec       cuda.ProductSpec
	}{
		{"product-bf16", "tensors of bfloat16", cuda.ProductSpec{In: cuda.BF16, Out: cuda.BF16}},
		{"product-fp8", "tensors of e4m3", cuda.ProductSpec{In: cuda.E4M3, Out: cuda.BF16, TransB: true, ScaleA: n * n, ScaleB: n * n}},
	} {
		p.spec.M, p.spec.N, p.spec.K = n, n, n
		err = errors.Join(err, b.report(line{Case: p.name, Mode: p.mode}, func(l *line) error {
			return b.on(gpu.Float32, func(dev *device.Accelerator, t *clock) (err error) {
				l.MS, err = b.libraryProduct(dev, t, p.spec)
				l.TFlops = flops / l.MS / 1e9
				return err
			})
		}))
	}
	return err
}

// libraryProduct measures a call of the driver's library.
func (b *bench) libraryProduct(dev *device.Accelerator, t *clock, s cuda.ProductSpec) (ms float64, err error) {
	lib, ok := dev.Memory().(interface{ Driver() cuda.Driver }).Driver().(cuda.Multiplier)
	if !ok {
		return 0, cuda.ErrNoLibrary
	}
	p, err := lib.Product(s)
	if err != nil {
		return 0, err
	}
	runs, ok := dev.Memory().(interface {
		Run(gpumem.Work, *gpumem.Use, []*device.Buffer, *device.Scratch) error
	})
	if !ok {
		return 0, fmt.Errorf("%v is no GPU", dev.ID())
	}
	const size = 2 // of what is made at once: an element, or two of 8 bits, or half a scale
	of := func(rows, terms int) kernels.Type {
		n := rows * terms * s.In.Size()
		if s.In.Scaled() {
			n += 4 * cuda.Scales(rows, terms)
		}
		return floats(n / size)
	}
	all, err := noisy(dev, size, of(s.M, s.K), of(s.N, s.K), floats(s.M*s.N*s.Out.Size()/size), floats(p.Workspace()/size+1))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, all.release()) }()
	var list cuda.List
	list.AddProduct(p, all[0].Addr(), all[1].Addr(), all[2].Addr(), all[2].Addr(), 0, 0, all[3].Addr())
	use := &gpumem.Use{Access: []gpumem.Access{gpumem.Read, gpumem.Read, gpumem.Write, gpumem.Write}}
	return t.median(1, func() error {
		return runs.Run(work(func(to cuda.Stream) error { return to.Run(&list) }), use, all, nil)
	})
}

// work is [gpumem.Work] as a function.
type work func(cuda.Stream) error

// Submit is [gpumem.Work]'s.
func (w work) Submit(to cuda.Stream, _ uint64) error { return w(to) }
func (work) Flag() uint8                             { return 0 }
