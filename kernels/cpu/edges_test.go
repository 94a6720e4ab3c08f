package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

func TestWhatIsNotFiniteTouchesOnlyWhatDependsOnIt(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 17))
	for range soak.Cases(150) {
		kerneltest.CheckNotFinite(t, device.Host(), r)
	}
}

func TestWhatAQueryMayNotSeeIsNoBusinessOfIts(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 17))
	for range soak.Cases(60) {
		d := []device.Dtype{device.Float32, device.Float64}[r.IntN(2)]
		kerneltest.CheckUnseen(t, r, d, 1+r.IntN(70), r.IntN(3), 1+r.IntN(20), func(i kernels.Instr, in ...kerneltest.Tensor) []kerneltest.Tensor {
			var types []kernels.Type
			for _, x := range in {
				types = append(types, x.Type)
			}
			out, err := i.Infer(types)
			require.NoError(t, err)
			got, err := kerneltest.RunOn(t, device.Host(), i, out, in)
			require.NoError(t, err)
			return got
		})
	}
}

func TestAnInfinityInACornerIsNoBusinessOfTapsThatDoNotSeeIt(t *testing.T) {
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		x, gy := kerneltest.Few(rand.New(rand.NewPCG(1, 1)), d, 0, 1, 1, 3, 3), kerneltest.New(d, device.Shape{1, 1, 3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		x.V[0] = math.Inf(1)
		i := kernels.Conv2dGradW{Window: kernels.Window{Kernel: [2]int{3, 3}, Before: [2]int{1, 1}, After: [2]int{1, 1}}}
		out, err := i.Infer([]kernels.Type{x.Type, gy.Type})
		require.NoError(t, err)
		w, err := kerneltest.RunOn(t, device.Host(), i, out, []kerneltest.Tensor{x, gy})
		require.NoError(t, err)
		for tap, v := range w[0].V {
			require.Equal(t, tap/3 < 2 && tap%3 < 2, math.IsInf(v, 1), "tap %d is %v", tap, v) // the others see it from outside
			require.False(t, math.IsNaN(v), "tap %d", tap)
		}
	}
}
