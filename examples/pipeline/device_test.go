package main

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport/simnet"
)

// kinds are accelerators that can be had without a GPU; each is made anew.
var kinds = map[string]func(t *testing.T, i int) *device.Accelerator{
	"late": func(*testing.T, int) *device.Accelerator { return kerneltest.NewLate(place.GPU) },
	"ptx": func(t *testing.T, i int) *device.Accelerator {
		d, err := gpu.On(testgpu.Open(t, ptx.Config{Late: rand.New(rand.NewPCG(uint64(i), 1))}), place.GPU)
		require.NoError(t, err)
		return d
	},
}

// stagesOn are workers with such a device each.
func stagesOn(t *testing.T, n int, kind func(t *testing.T, i int) *device.Accelerator) []*rpc.Worker {
	return rpctest.WorldWith(t, simnet.New(simnet.Config{Logger: slog.New(slog.DiscardHandler)}), n, func(i int, cfg *rpc.Config) {
		d := kind(t, i)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		here := place.Device{Device: d}
		cfg.Functions, cfg.Devices, cfg.DeviceMaps = functions(), here.Extra(), here.Maps(place.Others(i, n)...)
	})
}

func TestTheModelTrainsOnAnAcceleratorAsOnTheCPUSplitOrNot(t *testing.T) {
	s := tiny
	s.Blocks = []int{1, 1, 0}
	alone, err := newWhole(s, 1e-2, nil, kinds["late"](t, 0))
	require.NoError(t, err)
	p, err := newPipeline(t.Context(), stagesOn(t, 3, kinds["late"])[0], s, 1e-2, nil, 3)
	require.NoError(t, err)
	for _, x := range append(p.first.params(), alone.stages[2].params()...) {
		require.Equal(t, place.GPU, x.Device())
	}
	m := asOnTheCPU(t, s, 3, alone, p)
	ids := func() *autodiff.Tensor { return autodiff.New([]int32{1, 2, 3, 4, 5}, 1, 5) }
	want, err := m.values(t.Context(), ids(), nil)
	require.NoError(t, err)
	got, err := p.values(t.Context(), ids(), nil)
	require.NoError(t, err)
	require.InDeltaSlice(t, want, got, 1e-4)
	f, err := measure(t.Context(), p, 1, draws(s, 3))
	require.NoError(t, err)
	f.print(io.Discard, s)
	require.NoError(t, alone.stages[0].dev.Close())
}

// asOnTheCPU trains models beside one on the host.
func asOnTheCPU(t *testing.T, s sizes, steps int, ms ...language) (host *whole) {
	host, err := newWhole(s, 1e-2, nil, device.Host())
	require.NoError(t, err)
	var drawn []func() []micro
	for range ms {
		drawn = append(drawn, draws(s, 2))
	}
	draw := draws(s, 2)
	for step := range steps {
		want, err := host.step(t.Context(), draw())
		require.NoError(t, err)
		for i, m := range ms {
			got, err := m.step(t.Context(), drawn[i]())
			require.NoError(t, err)
			require.InEpsilon(t, want, got, 1e-5, "step %d of model %d", step, i)
		}
	}
	return host
}

func TestTheStagesTrainOnGPUsAsOnTheCPU(t *testing.T) {
	s := tiny
	s.Blocks = []int{0, 1}
	p, err := newPipeline(t.Context(), stagesOn(t, 2, kinds["ptx"])[0], s, 1e-2, nil, 3)
	require.NoError(t, err)
	asOnTheCPU(t, s, 2, p)
}

func TestATokenThatIsNotThereEndsTheStepOnAGPUWithItsNumber(t *testing.T) {
	s := tiny
	s.Blocks = []int{0, 0}
	p, err := newPipeline(t.Context(), stagesOn(t, 2, kinds["ptx"])[0], s, 1e-2, nil, 2)
	require.NoError(t, err)
	draw := draws(s, 2)
	before := read(t, p.first.embedding[0])
	bad := draw()
	bad[1].ids = autodiff.New([]int32{0, 1, 2, 3, int32(s.Vocab)}, 1, 5)
	bad[1].next = autodiff.New([]int32{0, 1, 2, 3, 4}, 1, 5)
	_, err = p.step(t.Context(), bad)
	var index *kernels.IndexError
	require.ErrorAs(t, err, &index)
	require.Equal(t, int64(s.Vocab), index.ID)
	require.ErrorContains(t, err, "model.go")
	require.Equal(t, before, read(t, p.first.embedding[0]), "nothing was stepped")
	_, err = p.step(t.Context(), draw())
	require.NoError(t, err)
}
