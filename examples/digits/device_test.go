package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport/simnet"
)

// watched is a driver that counts what the host waits for: copies to it, and streams as a whole.
type watched struct {
	cuda.Driver
	copies, waits int
}

func (d *watched) Stream() (cuda.Stream, error) {
	s, err := d.Driver.Stream()
	return &watchedStream{s, d}, err
}

type watchedStream struct {
	cuda.Stream
	of *watched
}

func (s *watchedStream) CopyOut(dst []byte, at uintptr) error {
	s.of.copies++
	return s.Stream.CopyOut(dst, at)
}

func (s *watchedStream) Sync() error {
	s.of.waits++
	return s.Stream.Sync()
}

// moved is the network with its parameters on a device.
func moved(t *testing.T, s sizes, r optim.Rule, d device.Device) *whole {
	m, err := newWhole(s, r, d)
	require.NoError(t, err)
	return m
}

// trainOn gives the losses of some steps.
func trainOn(t *testing.T, r optim.Rule, d device.Device) (losses []float64) {
	data, err := table.Load("", 1)
	require.NoError(t, err)
	m := moved(t, sizes{data.Features, 24, data.Classes, 1, 0}, r, d)
	order := rand.New(rand.NewPCG(1, 4)).Perm(len(data.Train.Y))
	for step := range 6 {
		x, y := data.Train.Batch(order[step*16 : step*16+16])
		loss, err := m.step(t.Context(), x, y)
		require.NoError(t, err)
		losses = append(losses, loss)
	}
	return losses
}

func TestTheModelTrainsInBFloat16(t *testing.T) {
	for _, r := range []optim.Rule{rule(0.05), optim.AdamW{LR: 0.01}} {
		want := trainOn(t, r, device.Host())
		d, err := gpu.Config{Precision: gpu.BF16}.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
		require.NoError(t, err)
		got := trainOn(t, r, d)
		requireRelative(t, want, got, 2e-2, "bfloat16")
		require.NotEqual(t, want, got)
		require.Less(t, got[5], got[0], "it learns")
		require.NoError(t, d.Close())
	}
}

func TestTheModelTrainsOnAnAcceleratorAsOnTheCPU(t *testing.T) {
	for _, r := range []optim.Rule{rule(0.05), optim.AdamW{LR: 0.01}} {
		want := trainOn(t, r, device.Host())
		require.Less(t, want[5], want[0], "it learns")
		watch := &watched{Driver: testgpu.Open(t, ptx.Config{})}
		onPTX, err := gpu.On(watch, device.CUDA(0))
		require.NoError(t, err)
		for name, d := range map[string]*device.Accelerator{"late": kerneltest.NewLate(device.CUDA(1)), "ptx": onPTX} {
			t.Run(fmt.Sprintf("%T on %s", r, name), func(t *testing.T) {
				requireRelative(t, want, trainOn(t, r, d), 1e-5, name)
				if d == onPTX {
					require.Equal(t, []int{2 * len(want), 0}, []int{watch.copies, watch.waits}, "the host waits for each loss, which comes with the fault record, and for nothing else")
				}
				require.NoError(t, d.Close())
			})
		}
	}
}

// halvesOn is the network on two workers with a GPU each.
func halvesOn(t *testing.T, s sizes, r optim.Rule, open func() cuda.Driver) *halves {
	ws := rpctest.WorldWith(t, simnet.New(simnet.Config{Logger: slog.New(slog.DiscardHandler)}), 2, func(i int, cfg *rpc.Config) {
		d, err := gpu.On(open(), place.GPU)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		here := place.Device{Device: d}
		cfg.Functions, cfg.Devices, cfg.DeviceMaps = functions(), here.Extra(), here.Maps(place.Others(i, 2)...)
	})
	m, err := newHalves(t.Context(), ws[0], "worker1", s, r)
	require.NoError(t, err)
	return m
}

func TestTheSplitModelTrainsOnGPUsAsOnTheCPU(t *testing.T) {
	data, err := table.Load("", 1)
	require.NoError(t, err)
	s := sizes{data.Features, 24, data.Classes, 1, 0}
	whole := moved(t, s, rule(0.05), device.Host())
	m := halvesOn(t, s, rule(0.05), func() cuda.Driver { return testgpu.Open(t, ptx.Config{}) })
	for _, p := range m.head.Params() {
		require.Equal(t, place.GPU, p.Device())
	}
	order := rand.New(rand.NewPCG(1, 4)).Perm(len(data.Train.Y))
	both := func(of func(m model) (float64, error)) {
		want, err := of(whole)
		require.NoError(t, err)
		got, err := of(m)
		require.NoError(t, err)
		require.InDelta(t, want, got, 1e-5*want)
	}
	for step := range 6 {
		both(func(m model) (float64, error) {
			x, y := data.Train.Batch(order[step*16 : step*16+16])
			return m.step(t.Context(), x, y)
		})
	}
	both(func(m model) (float64, error) {
		x, y := data.Train.Batch(order[:100])
		return m.accuracy(t.Context(), x, y)
	})
}
