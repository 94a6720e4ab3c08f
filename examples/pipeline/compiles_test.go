package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/internal/gputest"
	"github.com/weft-project/weft/kernels/gpu"
)

func TestTheDriverCompilesNothingForTheFirstSteps(t *testing.T) {
	s, err := parse([]string{"--steps", "3", "--micro", "2", "--plot", ""}, io.Discard)
	require.NoError(t, err)
	text, err := s.corpus()
	require.NoError(t, err)
	gputest.Compiles(t, "pipeline", func(t *testing.T, open func() cuda.Driver) {
		on := func(*testing.T, int) *device.Accelerator {
			d, err := gpu.On(open(), place.GPU)
			require.NoError(t, err)
			return d
		}
		d := on(t, 0)
		whole, err := newWhole(s.sizes(text), s.lr, rates(s.steps), d)
		require.NoError(t, err)
		p, err := newPipeline(t.Context(), stagesOn(t, 3, on)[0], s.sizes(text), s.lr, rates(s.steps), s.inFlight)
		require.NoError(t, err)
		for _, m := range []language{whole, p} {
			var losses []float64
			require.NoError(t, steps(t.Context(), s, m, s.draw(text), io.Discard, &losses))
			_, err := test(t.Context(), s, text, m)
			require.NoError(t, err)
		}
		_, err = measure(t.Context(), p, 1, s.draw(text))
		require.NoError(t, err)
		require.NoError(t, d.Close())
	})
}
