package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
)

func TestRandomNumbersAreTheHostsToTheBit(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 31, 32, 33, 1023, 4099} {
			key := kerneltest.New(device.Int64, device.Shape{2}, float64(r.Int64N(1<<53)), float64(-r.Int64N(1<<53)))
			of := kernels.Type{Dtype: d, Shape: device.Shape{n}}
			for _, i := range []kernels.Random{{Type: of}, {Fn: kernels.Bernoulli, Type: of, P: 0.3}, {Fn: kernels.Bernoulli, Type: of, P: 1}, {Fn: kernels.Bernoulli, Type: of}} {
				require.Equal(t, results(t, device.Host(), i, key), results(t, g, i, key), "%v", i)
			}
			for _, p := range []float64{0, 0.1, 0.5, 1} {
				i, x := kernels.Dropout{P: p}, drawn(r, d, n)
				require.Equal(t, results(t, device.Host(), i, x, key), results(t, g, i, x, key), "%v", i)
			}
		}
	})
}
