package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/gpu"
)

// sizes are what the cases are measured with.
type sizes struct {
	bytes        int // of a tensor that memory limits
	matrix       int // rows and columns
	small, large mlpSize
	gptSize      gptSize
	inner        int // steps of the small network that are timed together
	check        checkSizes
}

// checkSizes are those at which the CPU says what is right.
type checkSizes struct {
	small, large mlpSize
	gpt          gptSize
}

var (
	full = sizes{
		bytes: 1 << 30, matrix: 8192, inner: 20,
		small:   mlpSize{64, []int{784, 1024, 1024, 10}},
		large:   mlpSize{8192, []int{4096, 4096, 4096, 4096, 4096}},
		gptSize: gptSize{16, 1024, 50257, 768, 12, 12},
		check: checkSizes{
			small: mlpSize{64, []int{784, 256, 256, 10}}, large: mlpSize{256, []int{256, 256, 256, 256, 256}},
			gpt: gptSize{2, 64, 1000, 128, 4, 2},
		},
	}
	tiny = sizes{
		bytes: 64 << 10, matrix: 64, inner: 1,
		small: tinyCheck.small, large: tinyCheck.large, gptSize: tinyCheck.gpt, check: tinyCheck,
	}
	tinyCheck = checkSizes{
		small: mlpSize{4, []int{12, 16, 16, 10}}, large: mlpSize{8, []int{16, 16, 16, 16, 16}}, gpt: gptSize{2, 6, 31, 16, 2, 2},
	}
)

func (b *bench) small(context.Context) error {
	return b.trained(line{Case: "mlp-small"}, gpu.Float32, newSmall(b.sizes.small), b.inner, nil)
}

func (b *bench) large(context.Context) error {
	s := b.sizes.large
	flops := 3 * 2 * float64(s.rows) * float64(s.widths[0]) * float64(s.widths[0]) * 4
	return b.trained(line{Case: "mlp-large"}, gpu.BF16, newLarge(s), 1, func(l *line) { l.TFlops = flops / l.MS / 1e9 })
}

func (b *bench) gpt(context.Context) error {
	s := b.gptSize
	return b.trained(line{Case: "gpt2-small"}, gpu.BF16, newGPT(s), 1, func(l *line) { l.TokensPerS = float64(s.batch*s.length) / l.MS * 1e3 })
}

// trained measures a training step.
func (b *bench) trained(l line, p gpu.Precision, m model, inner int, more func(*line)) error {
	l.Mode = "function"
	return b.tell(l, func(l *line) error {
		return b.on(p, func(dev *device.Accelerator, t *clock) error {
			step, err := m.on(dev).stepper()
			if err != nil {
				return err
			}
			l.MS, err = t.median(inner, func() error { _, err := step(false); return err })
			if err == nil && more != nil {
				more(l)
			}
			if err == nil { // a bad index, or a lost device
				_, err = step(true)
			}
			return err
		})
	})
}

// correct trains the models at small sizes, here and on the CPU, and compares their losses.
func (b *bench) correct(context.Context) (err error) {
	for _, k := range []struct {
		name string
		m    model
	}{{"mlp-small", newSmall(b.check.small)}, {"mlp-large", newLarge(b.check.large)}, {"gpt2-small", newGPT(b.check.gpt)}} {
		want, e := k.m.on(device.Host()).losses(6)
		if e != nil {
			return e
		}
		for n, p := range precisions {
			err = errors.Join(err, b.tell(line{Case: "correct", Op: k.name, Mode: p.name}, func(l *line) error {
				return b.on(p.is, func(dev *device.Accelerator, _ *clock) error {
					got, err := k.m.on(dev).losses(len(want))
					if err != nil {
						return err
					}
					by := off(got, want)
					l.Off = &by
					if most := [...]float64{1e-4, 1e-2, 3e-2}[n]; by > most {
						return fmt.Errorf("losses %v, on the CPU %v: more than %g off", got, want, most)
					}
					return nil
				})
			}))
		}
	}
	return err
}

// off is by how much losses differ, at most, as a share; the largest number where one is none.
func off(got, want []float64) (most float64) {
	for k := range want {
		d := math.Abs(got[k]-want[k]) / math.Abs(want[k])
		if math.IsNaN(d) {
			return math.MaxFloat64
		}
		most = max(most, d)
	}
	return most
}
