package cuda_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/device/devicetest"
)

func TestAGPUIsADevice(t *testing.T) {
	for name, c := range map[string]ptx.Config{"at once": {}, "late": {Late: rand.New(rand.NewPCG(1, 2))}} {
		t.Run(name, func(t *testing.T) {
			g, err := cuda.NewGPU(ptx.New(c))
			require.NoError(t, err)
			d := device.Over(device.CUDA(0), g, 0)
			defer func() { require.NoError(t, d.Close()) }()
			devicetest.Run(t, func(*testing.T) device.Device { return d })
		})
	}
}
