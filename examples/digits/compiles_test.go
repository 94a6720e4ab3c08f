package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/internal/gputest"
	"github.com/weft-project/weft/kernels/gpu"
)

func TestTheDriverCompilesNothingForAnEpoch(t *testing.T) {
	data, err := table.Load("", 1)
	require.NoError(t, err)
	gputest.Compiles(t, "digits", func(t *testing.T, open func() cuda.Driver) {
		for _, optimizer := range []string{"sgd", "adam"} {
			t.Run(optimizer, func(t *testing.T) {
				s, err := parse([]string{"--workers", "1", "--epochs", "1", "--plot", "", "--optimizer", optimizer}, io.Discard)
				require.NoError(t, err)
				d, err := gpu.On(open(), place.GPU)
				require.NoError(t, err)
				whole, err := newWhole(s.sizes(data), s.rule(), d)
				require.NoError(t, err)
				for _, m := range []model{whole, halvesOn(t, s.sizes(data), s.rule(), open)} {
					require.NoError(t, train(t.Context(), s, data, m, io.Discard, io.Discard))
				}
				require.NoError(t, d.Close())
			})
		}
	})
}
