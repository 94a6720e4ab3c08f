package optim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// crowd is many parameters on a device, all of the same value, with their gradients.
func crowd(t *testing.T, dev device.Device, n int) (params []*autodiff.Tensor, grads map[*autodiff.Tensor]*autodiff.Tensor) {
	grads = map[*autodiff.Tensor]*autodiff.Tensor{}
	for range n {
		p := autodiff.To(autodiff.New([]float32{1, 2, 3}), dev).RequireGrad()
		require.NoError(t, p.Err())
		params, grads[p] = append(params, p), autodiff.To(autodiff.New([]float32{1, 1, 1}), dev)
	}
	return params, grads
}

// fill takes a device's memory but for so many of the smallest blocks, until it is called.
func fill(t *testing.T, dev *device.Accelerator, but int) (empty func()) {
	var all []*device.Buffer
	for {
		b, err := dev.Alloc(12)
		if err != nil {
			require.ErrorIs(t, err, device.ErrMemory)
			break
		}
		all = append(all, b)
	}
	drop := func(n int) {
		for _, b := range all[len(all)-n:] {
			require.NoError(t, b.Release())
		}
		all = all[:len(all)-n]
	}
	drop(but)
	return func() { drop(len(all)) }
}

func TestWhereMemoryRunsOutNoParameterIsStepped(t *testing.T) {
	const n = 40 // several instructions
	dev, err := gpu.On(ptxtest.New(ptx.Config{Bytes: 1 << 17}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	for name, rule := range map[string]Rule{"copies of values": SGD{LR: 1}, "the first state": Adam{LR: 1}} {
		t.Run(name, func(t *testing.T) {
			params, grads := crowd(t, dev, n)
			o, err := New(rule, params...)
			require.NoError(t, err)
			var held []*device.Buffer // as a forward under way does
			for _, p := range params {
				b, err := p.Acquire()
				require.NoError(t, err)
				held = append(held, b)
			}
			free := fill(t, dev, 20)
			err = o.Step(grads)
			require.ErrorIs(t, err, ErrStep)
			require.ErrorIs(t, err, device.ErrMemory)
			require.ErrorContains(t, err, "no parameter was stepped")
			for k, p := range params {
				require.Equal(t, []float32{1, 2, 3}, valuesOf(t, p))
				require.Zero(t, o.params[k].Steps)
			}
			free()
			require.NoError(t, o.Step(grads))
			for k, p := range params {
				require.InDeltaSlice(t, []float32{0, 1, 2}, valuesOf(t, p), 1e-6)
				require.Equal(t, 1, o.params[k].Steps)
				require.NoError(t, held[k].Release())
			}
		})
	}
}
