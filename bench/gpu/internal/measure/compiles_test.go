package measure

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gputest"
	"github.com/weft-project/weft/internal/stillgpu"
	"github.com/weft-project/weft/kernels/gpu"
)

// GPT-2 small has twelve blocks that are all alike: one has all that there is to compile.
func networks() map[string]model {
	gpt := full.gptSize
	gpt.layers = 1
	return map[string]model{"gpt": newGPT(gpt), "small": newSmall(full.small)}
}

func TestTheDriverCompilesNothingForTheFirstStepsOfTheNetworks(t *testing.T) {
	models := networks()
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

func TestTheNetworksTrainInBFloat16OnAGPUThatHasNone(t *testing.T) {
	for _, library := range []bool{false, true} {
		still, driver := stillgpu.Config{Arch: gpu.OldestArch, Library: library}.New()
		d, err := gpu.Config{Precision: gpu.BF16}.On(driver, device.CUDA(0))
		require.NoError(t, err)
		for _, m := range networks() {
			_, err = m.on(d).losses(2)
			require.NoError(t, err)
		}
		require.NoError(t, d.Close())
		texts, codes := still.Loaded()
		require.NotEmpty(t, texts)
		require.Zero(t, codes)
		for _, text := range texts {
			require.Contains(t, text, ".target sm_75")
		}
	}
}
