package local

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// torchsPeak is how much torch 1.13.1 needs at most during a step of the block, beside its parameters, its batch and what it keeps from step to
// step: 23.6 MB, in bench/torch/memory.py.
const torchsPeak = 23_600_000

// fits says whether steps of the block fit on a device of so many bytes.
func fits(t *testing.T, bytes int64) (ok bool, still int64) {
	dev := device.NewSim(device.SimConfig{Bytes: bytes})
	defer func() { require.NoError(t, dev.Close()) }()
	m := transformerOn(dev)
	still = dev.Stats().LiveBytes
	for range 2 {
		grads, err := autodiff.Backward(m.loss())
		if errors.Is(err, device.ErrMemory) {
			return false, still
		}
		require.NoError(t, err)
		grads.Free()
	}
	return true, still
}

func TestTheBlocksStepNeedsFourFifthsOfTorchsMemory(t *testing.T) {
	low, high := int64(1<<20), int64(1<<28)
	var still int64
	for high-low > 64<<10 {
		mid := (low + high) / 2
		ok, s := fits(t, mid)
		if ok {
			high, still = mid, s
		} else {
			low = mid
		}
	}
	t.Logf("a step needs %.1f MB beside %.1f MB of parameters and batch", float64(high-still)/1e6, float64(still)/1e6)
	require.Less(t, high-still, int64(0.8*torchsPeak))
}
