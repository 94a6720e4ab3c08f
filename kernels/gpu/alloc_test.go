//go:build !race

package gpu

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

func TestARunAllocatesNothing(t *testing.T) {
	for _, d := range []*device.Accelerator{on(t, &idle{}), brief(t, &idle{})} {
		requireNoAllocs(t, d)
	}
}

func requireNoAllocs(t *testing.T, d *device.Accelerator) {
	r, b := chain(t, d, 8), operand(t, d, 0, 0, 0, 0)
	bufs, number := []*device.Buffer{b}, make([]byte, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.Run(bufs); err != nil {
			panic(err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() { // of memory that is in use, and so through pinned memory of the run's stream
		if err := errors.Join(r.Run(bufs), d.Upload(b, 0, number)); err != nil {
			panic(err)
		}
	}))
	back, err := backends.For(d)
	require.NoError(t, err)
	k, err := back.Prepare(kernels.Unary{}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{12}}})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := k.Run(bufs, bufs); err != nil {
			panic(err)
		}
	}))
	look, err := back.Prepare(kernels.Gather{}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{12}}, {Dtype: device.Int32, Shape: device.Shape{12}}})
	require.NoError(t, err)
	ids := operand(t, d, 0, 0, 0, 0)
	of := []*device.Buffer{ids, ids}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := look.Run(bufs, of); err != nil {
			panic(err)
		}
	}))
	require.NoError(t, ids.Release())
	require.NoError(t, b.Release())
}
