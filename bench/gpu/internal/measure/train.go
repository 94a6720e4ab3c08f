package measure

import (
	"context"
	"errors"

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
	conv         convSize
}

var (
	full = sizes{
		bytes: 1 << 30, matrix: 8192, inner: 20,
		small:   mlpSize{64, []int{784, 1024, 1024, 10}},
		large:   mlpSize{8192, []int{4096, 4096, 4096, 4096, 4096}},
		gptSize: gptSize{16, 1024, 50257, 768, 12, 12},
		check: checkSizes{
			small: mlpSize{64, []int{784, 256, 256, 10}}, large: mlpSize{256, []int{256, 256, 256, 256, 256}},
			gpt: gptSize{2, 64, 1000, 128, 4, 2}, conv: convSize{16, 3, 16, []int{16, 24}, 10},
		},
	}
	tiny = sizes{
		bytes: 64 << 10, matrix: 64, inner: 1,
		small: tinyCheck.small, large: tinyCheck.large, gptSize: tinyCheck.gpt, check: tinyCheck,
	}
	tinyCheck = checkSizes{
		small: mlpSize{4, []int{12, 16, 16, 10}}, large: mlpSize{8, []int{16, 16, 16, 16, 16}}, gpt: gptSize{2, 6, 31, 16, 2, 2},
		conv: convSize{2, 2, 8, []int{3, 4}, 5},
	}
)

func (b *bench) small(context.Context) error {
	return b.trained(line{Case: "mlp-small"}, gpu.Float32, newSmall(b.sizes.small), b.inner, nil)
}

func (b *bench) large(context.Context) error {
	s := b.sizes.large
	flops := 3 * 2 * float64(s.rows) * float64(s.widths[0]) * float64(s.widths[0]) * 4
	more := func(l *line) { l.TFlops = flops / l.MS / 1e9 }
	return errors.Join(b.trained(line{Case: "mlp-large"}, gpu.BF16, newLarge(s), 1, more), b.trained(line{Case: "mlp-large-fp8"}, gpu.FP8, newLarge(s), 1, more))
}

func (b *bench) gpt(context.Context) error {
	s := b.gptSize
	return b.trained(line{Case: "gpt2-small"}, gpu.BF16, newGPT(s), 1, func(l *line) { l.TokensPerS = float64(s.batch*s.length) / l.MS * 1e3 })
}

// trained measures a training step.
func (b *bench) trained(l line, p gpu.Precision, m model, inner int, more func(*line)) error {
	l.Mode = "function"
	return b.report(l, func(l *line) error {
		return b.counted(l.Case, p, func(dev *device.Accelerator, t *clock) error {
			step, err := m.on(dev).stepper()
			if err != nil {
				return err
			}
			l.MS, err = t.median(inner, func() error { _, err := step(false); return err })
			if err == nil && more != nil {
				more(l)
			}
			held := dev.Stats()
			l.HeldGiB = float64(held.LiveBytes+held.PooledBytes) / (1 << 30)
			if err == nil { // a bad index, or a lost device
				_, err = step(true)
			}
			return err
		})
	})
}
