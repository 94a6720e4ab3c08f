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
}{{"f32", gpu.Float32}, {"tf32", gpu.TF32}, {"bf16", gpu.BF16}}

// product measures products of float32 in each precision, and the library's alone, of bfloat16.
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
	return errors.Join(err, b.report(line{Case: "product-bf16", Mode: "tensors of bfloat16"}, func(l *line) error {
		return b.on(gpu.Float32, func(dev *device.Accelerator, t *clock) (err error) {
			l.MS, err = b.libraryProduct(dev, t, cuda.ProductSpec{M: n, N: n, K: n, In: cuda.BF16, Out: cuda.BF16})
			l.TFlops = flops / l.MS / 1e9
			return err
		})
	}))
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
	all, err := noisy(dev, s.In.Size(), floats(s.M, s.K), floats(s.K, s.N), floats(s.M, s.N), floats(p.Workspace()/s.In.Size()+1))
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
