package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
)

var where = Define("where", func(_ context.Context, x *autodiff.Tensor) (device.ID, error) { return x.Device(), nil })

var twice = Define("twice", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
	return autodiff.Scale(x, 2), nil
})

var stray = Define("stray", func(c context.Context, _ int) (*autodiff.Tensor, error) {
	w, _ := FromContext(c)
	dev, err := w.Devices().Get(device.Sim(2))
	if err != nil {
		return nil, err
	}
	return autodiff.To(autodiff.Rand(2), dev), nil
})

// accelerated gives each of two workers accelerators, worker0's sim:0 mapped to worker1's sim:1.
func accelerated(t *testing.T, network bool) []*Worker {
	change := func(i int, cfg *Config) {
		cfg.Functions = []Function{where, twice, stray}
		if i == 0 {
			cfg.Devices = []device.Device{device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{Index: 3})}
			cfg.DeviceMaps = map[string]device.Map{"worker1": {device.Sim(0): device.Sim(1)}}
		} else {
			cfg.Devices = []device.Device{device.NewSim(device.SimConfig{Index: 1}), device.NewSim(device.SimConfig{Index: 2})}
		}
	}
	if network {
		return world(t, 2, nil, change)
	}
	return sim(t, 2, change)
}

func simOf(t *testing.T, w *Worker, i int) device.Device {
	t.Helper()
	d, err := w.Devices().Get(device.Sim(i))
	require.NoError(t, err)
	return d
}

func TestTensorsLandWhereTheMapSaysAndResultsAndGradientsTakeTheWayBack(t *testing.T) {
	for name, quic := range map[string]bool{"simnet": false, "quic": true} {
		t.Run(name, func(t *testing.T) {
			ws := accelerated(t, quic)
			x := autodiff.To(autodiff.New([]float32{1, 2, 3}), simOf(t, ws[0], 0)).RequireGrad()
			require.NoError(t, x.Err())
			require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
				id, err := where.Call(ctx.NoGrad(c), "worker1", x)
				require.NoError(t, err)
				require.Equal(t, device.Sim(1), id)
				y, err := twice.Call(c, "worker1", x)
				require.NoError(t, err)
				require.Equal(t, device.Sim(0), y.Device())
				require.NotZero(t, simOf(t, ws[1], 1).Stats().Live)
				require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
				grads, err := ctx.Gradients(c)
				require.NoError(t, err)
				require.Equal(t, device.Sim(0), grads[x].Device())
				got, err := autodiff.Values[float32](grads[x])
				require.NoError(t, err)
				require.Equal(t, []float32{2, 2, 2}, got)
				return nil
			}))
			require.NoError(t, ws[0].Settle(t.Context()))
			eventually(t, "all buffers are released", func() bool { // a handler may hold its answer a moment longer than the caller waits
				return simOf(t, ws[0], 0).Stats().Live == 0 && simOf(t, ws[1], 1).Stats().Live == 0
			})
		})
	}
}

func TestAReferencesTensorsTakeTheReversedMapHome(t *testing.T) {
	ws := accelerated(t, false)
	c := ws[0].Context(t.Context())
	x := autodiff.To(autodiff.New([]float32{1, 2}), simOf(t, ws[0], 0))
	r := twice.Remote(c, "worker1", x)
	y, err := r.ToHere(c)
	require.NoError(t, err)
	require.Equal(t, device.Sim(0), y.Device())
	got, err := autodiff.Values[float32](y)
	require.NoError(t, err)
	require.Equal(t, []float32{2, 4}, got)
	r.Release()
}

func TestAnUnmappedDeviceIsAnImmediateErrorAndTheNextCallWorks(t *testing.T) {
	ws := accelerated(t, false)
	c := ws[0].Context(t.Context())
	for range 3 {
		_, err := twice.Call(c, "worker1", autodiff.To(autodiff.Rand(2), simOf(t, ws[0], 3)))
		require.ErrorIs(t, err, device.ErrBadMap)
		require.ErrorContains(t, err, "sim:3")
		_, err = stray.Call(c, "worker1", 0)
		require.ErrorIs(t, err, device.ErrBadMap)
		require.ErrorContains(t, err, "sim:2")
		require.ErrorContains(t, err, "worker1")
		require.ErrorIs(t, twice.Remote(c, "worker1", autodiff.To(autodiff.Rand(2), simOf(t, ws[0], 3))).Ready(c), device.ErrBadMap)
		y, err := twice.Call(c, "worker1", autodiff.New([]float32{4}))
		require.NoError(t, err)
		require.Equal(t, device.ID{}, y.Device())
	}
	_, err := twice.Call(ws[1].Context(t.Context()), "worker0", autodiff.To(autodiff.Rand(2), simOf(t, ws[1], 1)))
	require.ErrorIs(t, err, device.ErrBadMap, "a map is for calls of its own worker")
	require.ErrorContains(t, err, "calls from worker1 to worker0 use {}, answers to calls from worker0 the reverse of its map, {sim:1→sim:0}")
}

func TestACalleeWithoutMemoryAnswersSoAndLivesOn(t *testing.T) {
	ws := sim(t, 2, func(i int, cfg *Config) {
		cfg.Functions = []Function{where}
		cfg.Devices = []device.Device{device.NewSim(device.SimConfig{Bytes: []int64{0, 4096}[i]})}
		if i == 0 {
			cfg.DeviceMaps = map[string]device.Map{"worker1": {device.Sim(0): device.Sim(0)}}
		}
	})
	c := ws[0].Context(t.Context())
	_, err := where.Call(c, "worker1", autodiff.To(autodiff.Rand(5000), simOf(t, ws[0], 0)))
	require.ErrorIs(t, err, device.ErrMemory)
	require.NotErrorIs(t, err, ErrProtocol)
	id, err := where.Call(c, "worker1", autodiff.To(autodiff.Rand(5), simOf(t, ws[0], 0)))
	require.NoError(t, err)
	require.Equal(t, device.Sim(0), id)
}
