//go:build !race

package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

// beside draws an extent near one at which rows come to another warp, tile or block.
func beside(r *rand.Rand, most int) int {
	for {
		if n := []int{16, 32, 64, 128}[r.IntN(4)] + r.IntN(4) - 2; n <= most {
			return n
		}
	}
}

func TestWhatAQueryMayNotSeeIsNoBusinessOfIts(t *testing.T) {
	exact, units := machine(t), brief(t, tensor(t))
	on := func(g *device.Accelerator) func(*testing.T, kernels.Instr, ...kerneltest.Tensor) []kerneltest.Tensor {
		return func(t *testing.T, i kernels.Instr, in ...kerneltest.Tensor) []kerneltest.Tensor {
			return results(t, g, i, in...)
		}
	}
	for name, c := range map[string]struct {
		d       device.Dtype
		most    int // rows
		extents []int
		run     func(t *testing.T, i kernels.Instr, in ...kerneltest.Tensor) []kerneltest.Tensor
	}{
		"float32":              {device.Float32, 66, []int{3, 8, 8, 68}, on(exact)},
		"float64":              {device.Float64, 34, []int{3, 8, 8, 34}, on(exact)},
		"products of bfloat16": {device.Float32, 130, []int{8, 8, 64, 72}, on(units)},
		"operands in bfloat16": {device.Float32, 130, []int{8, 8, 64, 72}, func(t *testing.T, i kernels.Instr, in ...kerneltest.Tensor) []kerneltest.Tensor {
			l := lies{of: i, in: 0b101111, out: 1}
			if len(in) == 3 {
				l.in = 7
			}
			got, err := l.run(t, units, in)
			require.NoError(t, err)
			return got
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(6, 18))
			for range soak.Cases(8) {
				kerneltest.CheckUnseen(t, r, c.d, beside(r, c.most), r.IntN(4)*r.IntN(8), c.extents[r.IntN(4)], func(i kernels.Instr, in ...kerneltest.Tensor) []kerneltest.Tensor {
					return c.run(t, i, in...)
				})
			}
		})
	}
}
