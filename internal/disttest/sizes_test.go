package disttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/transport/simnet"
)

// Values of such sizes go to another worker and come back, and their gradients after them.
func TestCallsWithTensorsOfSizesAroundThresholdsHaveTheGradientsOfOneProcess(t *testing.T) {
	add, mul := addFn(), mulFn()
	sizes := thresholds.Around(thresholds.Calls)
	bubble(t, 3, simnet.Config{}, func(t *testing.T, w *world) {
		for range sizes.Len() * soak.Cases(1) {
			at, side := sizes.Next()
			n := at.Elems(4, side)
			x, y := autodiff.Rand(n).RequireGrad(), autodiff.Rand(n).RequireGrad()
			require.Equal(t, device.Float32, x.Dtype())
			w.pass(t, 0, func(c context.Context) {
				requireLocal(t, c, []*autodiff.Tensor{x, y}, func(call calling) []*autodiff.Tensor {
					return []*autodiff.Tensor{autodiff.Sum(call(2, mul, call(1, add, x, y), y))}
				})
			})
		}
	}, add, mul)
	require.Empty(t, sizes.Missing())
}
