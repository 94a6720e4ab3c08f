package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

func TestAllThatIsWrongWithAGPUsConfigurationIsSaidAtOnce(t *testing.T) {
	_, err := Config{Precision: 7, Pooled: -1, Streams: 9, FP8From: -1}.On(nil, device.CUDA(0))
	require.ErrorIs(t, err, ErrConfig)
	for _, said := range []string{
		"the driver is nil; open one", "no Precision 7; use gpu.Float32, gpu.TF32, gpu.BF16 or gpu.FP8", "FP8From is -1", "Pooled is -1 bytes", "Streams is 9; use 1 to 8",
	} {
		require.ErrorContains(t, err, said)
	}
	for _, none := range []cuda.Driver{nil, (*ptx.Machine)(nil)} {
		_, err = On(none, device.CUDA(0))
		require.EqualError(t, err, "not a GPU's configuration: the driver is nil; open one with native.Open, or the interpreter's with interpreter.Open (device/cuda/interpreter)")
	}

	m := ptxtest.New(ptx.Config{})
	for said, c := range map[string]Config{
		"no Precision 4": {Precision: FP8 + 1}, "Pooled is -5": {Pooled: -5}, "Streams is -1": {Streams: -1}, "Streams is 9": {Streams: 9},
	} {
		_, err := c.On(m, device.CUDA(0))
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, said)
	}
	d, err := Config{Precision: BF16, Pooled: 1, Streams: mostStreams}.On(m, device.CUDA(0))
	require.NoError(t, err, "the driver is as it was")
	require.NoError(t, d.Close())
	_, err = gpumem.Config{Streams: mostStreams + 1}.NewGPU(ptxtest.New(ptx.Config{}))
	require.Error(t, err, "it takes more, and so may we")
}
