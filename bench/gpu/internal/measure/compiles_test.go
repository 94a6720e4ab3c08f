package measure

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gputest"
	"github.com/weft-project/weft/kernels/gpu"
)

// GPT-2 small has twelve blocks that are all alike: one has all that there is to compile.
func TestTheDriverCompilesNothingForTheFirstStepsOfTheNetworks(t *testing.T) {
	gpt := full.gptSize
	gpt.layers = 1
	models := map[string]model{"gpt": newGPT(gpt), "small": newSmall(full.small)}
	gputest.Compiles(t, "networks", func(t *testing.T, open func() cuda.Driver) {
		for name, m := range models {
			d, err := gpu.Config{Precision: map[string]gpu.Precision{"gpt": gpu.BF16}[name]}.On(open(), device.CUDA(0))
			require.NoError(t, err)
			_, err = m.on(d).losses(3)
			require.NoError(t, err)
			require.NoError(t, d.Close())
		}
	})
}
