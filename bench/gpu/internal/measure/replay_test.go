package measure

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// idle is a GPU that counts what it is asked to do, and does none of it.
type idle struct {
	cuda.Driver
	launches, replays int
}

type idleStream struct {
	cuda.Stream
	of *idle
}

func (d *idle) Stream() (cuda.Stream, error) {
	s, err := d.Driver.Stream()
	return &idleStream{s, d}, err
}

func (s *idleStream) Run(l *cuda.List) error {
	s.of.launches += len(l.Launches)
	return nil
}

func (s *idleStream) Replay(cuda.Graph) error {
	s.of.replays++
	return nil
}

var layered = gptSize{2, 6, 31, 16, 2, 12}

// A step that is repeated finds the memory of the step before, or there would be nothing to replay.
func TestATrainingStepIsReplayedOnceItsMemoryHasSettled(t *testing.T) {
	for name, c := range map[string]struct {
		m                 model
		launches, replays int
	}{
		"small MLP": {newSmall(full.small), 1, 2}, // the update; forward and backward
		"GPT":       {newGPT(layered), 7, 27},     // four updates of up to 44 parameters, and the embedding; a function serves 12 layers
	} {
		d := &idle{Driver: ptxtest.New(ptx.Config{})}
		dev, err := gpu.On(d, device.CUDA(0))
		require.NoError(t, err)
		step, err := c.m.on(dev).stepper()
		require.NoError(t, err)
		for range 6 {
			_, err = step(false)
			require.NoError(t, err)
		}
		for range 10 {
			d.launches, d.replays = 0, 0
			_, err = step(false)
			require.NoError(t, err)
			require.Equal(t, []int{c.launches, c.replays}, []int{d.launches, d.replays}, name)
		}
		require.NoError(t, dev.Close())
	}
}
