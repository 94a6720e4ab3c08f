package local

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// torchsPeak is how much torch 1.13.1 needs at most during a step of the block, beside its
// parameters, its batch and what it keeps from step to step: 24.1 MB, in bench/torch/memory.py.
const torchsPeak = 24_100_000

// fits says whether a step of the block fits on a device of so many bytes. Parameters and batch,
// which are nobody's, do not count.
func fits(t *testing.T, bytes int64) bool {
	dev := device.NewSim(device.SimConfig{Bytes: bytes})
	defer func() { require.NoError(t, dev.Close()) }()
	m := transformerOn(dev)
	grads, err := autodiff.Backward(m.loss())
	if errors.Is(err, device.ErrMemory) {
		return false
	}
	require.NoError(t, err)
	grads.Free()
	return true
}

func TestTheBlocksStepNeedsFourFifthsOfTorchsMemory(t *testing.T) {
	low, high := int64(10<<20), int64(0.8*torchsPeak)
	require.True(t, fits(t, high))
	for high-low > 128<<10 {
		if mid := (low + high) / 2; fits(t, mid) {
			high = mid
		} else {
			low = mid
		}
	}
	t.Logf("a step needs %.1f MB beside parameters and batch", float64(high)/1e6)
}
