package parallel_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
)

// lasting is what rank 0 gets of steps in which rank 1 has all rows, and a device on which it has
// room for the gradients of all steps but, where that is wanted, of the second one's sums.
func lasting(t *testing.T, config parallel.Config, full bool) (got [][]float32) {
	t.Helper()
	const side, steps, bad = 8, 4, 1
	w := newWorld(t, 2)
	far := device.NewSim(device.SimConfig{Bytes: 1 << 16})
	config.Names = []string{"matrix", "vector"}
	place := []device.Device{device.Host(), far}
	var hog *device.Buffer
	put := func(r int, values []float32, shape ...int) *autodiff.Tensor {
		return autodiff.To(autodiff.New(values, shape...), place[r])
	}
	replicas, ps := make([]*parallel.Replicas, 2), make([][]*autodiff.Tensor, 2)
	w.each(func(r int) (err error) {
		ps[r] = []*autodiff.Tensor{put(r, make([]float32, side*side), side, side).RequireGrad(), put(r, make([]float32, 3), 3).RequireGrad()}
		replicas[r], err = parallel.Replicate(t.Context(), w.gs[r], ps[r], config)
		return err
	})
	for step := range steps {
		src := rand.New(rand.NewPCG(uint64(step), 5))
		values := make([]float32, side*side+3)
		for i := range values {
			values[i] = float32(src.NormFloat64())
		}
		grads := map[*autodiff.Tensor]*autodiff.Tensor{ps[1][0]: put(1, values[:side*side], side, side)}
		if step >= bad { // which the step before has not led to expect
			grads[ps[1][1]] = put(1, values[side*side:], 3)
		}
		fails := full && step == bad
		if fails {
			var err error
			hog, err = far.Alloc(1<<16 - int(far.Stats().LiveBytes))
			require.NoError(t, err)
		}
		w.each(func(r int) error {
			if r == 1 {
				_, err := replicas[r].Combine(t.Context(), grads, 1)
				if fails != errors.Is(err, device.ErrMemory) || !fails && err != nil || fails && !strings.Contains(err.Error(), "the sum of gradients of ") {
					return fmt.Errorf("step %d: %w", step, err)
				}
				return nil
			}
			all, err := replicas[r].Combine(t.Context(), nil, 0)
			if err != nil {
				return err
			}
			v, err := autodiff.Values[float32](all[ps[r][0]])
			got = append(got, v)
			return err
		})
		if fails {
			require.NoError(t, hog.Release())
		}
	}
	return got
}

func TestARankWithoutRoomForItsSumsLearnsOfTheStepWhatTheOthersDo(t *testing.T) {
	for name, config := range map[string]parallel.Config{
		"exact": {}, "low rank": {LowRank: parallel.LowRank{Rank: 1}}, "8 bits": {Wire: parallel.Int8, Bucket: 1},
	} {
		var want, got [][]float32
		t.Run(name, func(t *testing.T) { want = lasting(t, config, false) })
		t.Run(name+", and no room once", func(t *testing.T) { got = lasting(t, config, true) })
		require.Equal(t, want, got, name)
	}
}
