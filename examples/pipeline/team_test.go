package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
)

func TestTwoPipelinesLoseWhatOneDoesWithABatchTwiceAsLarge(t *testing.T) {
	const steps, micros = 12, 3
	s := tiny
	s.Blocks = []int{1, 1}
	whole, err := newWhole(s, 1e-2, rates(steps), device.Host())
	require.NoError(t, err)
	ws := rpctest.World(t, rpctest.Net(), 4, functions()...)
	var pipelines [2]*pipeline
	both := func(fn func(k int) error) {
		for k, err := range rpctest.Attempt(2, fn) {
			require.NoError(t, err, "pipeline %d", k)
		}
	}
	both(func(k int) (err error) {
		other := s
		other.Seed += uint64(k) // those of pipeline 0 are what both get
		pipelines[k], err = newTeam(t.Context(), ws[2*k], other, team{2, 1e-2, steps}, 2)
		return err
	})
	draw := [3]func() []micro{draws(s, 2*micros), draws(s, 2*micros), draws(s, 2*micros)}
	for n := range steps {
		want, err := whole.step(t.Context(), draw[2]())
		require.NoError(t, err)
		both(func(k int) error {
			got, err := pipelines[k].step(t.Context(), draw[k]()[k*micros:][:micros])
			if err == nil {
				require.InEpsilon(t, want, got, 1e-5, "step %d", n)
			}
			return err
		})
	}
}

func TestTwoTimesThreeProcessesLoseAsOneDoesAndWriteTheSame(t *testing.T) {
	args := []string{"--replicas", "2", "--steps", "15", "--sample", "10", "--temperature", "0"}
	split, whole := runJSON(t, args...), runJSON(t, append(args, "--workers", "1")...)
	require.Equal(t, 6, split.Workers)
	require.Len(t, split.Losses, 15)
	for i := range whole.Losses {
		require.InEpsilon(t, whole.Losses[i], split.Losses[i], 1e-5, "step %d", i+1)
	}
	require.InEpsilon(t, whole.TestLoss, split.TestLoss, 1e-5)
	require.Equal(t, whole.Sample, split.Sample)
}
