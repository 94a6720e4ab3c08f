//go:build gpu && !gpucheck && linux && (amd64 || arm64)

package gpus

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
)

// Two GPUs of one process through the driver, in a process of its own: the driver is opened once.
func TestTwoGPUsOfOneProcessTrainSideBySideThroughTheDriver(t *testing.T) {
	const peers = "WEFT_TEST_PEERS"
	lib := fakecuda.Alone(t, peers+"=0")
	if lib == nil {
		fakecuda.Alone(t, peers+"=1")
		return
	}
	lib.Use(fakecuda.Interpreter())
	lib.Set("peers", map[string]int{"0": 0, "1": 1}[os.Getenv(peers)])
	var devs [2]*device.Accelerator
	for k := range devs {
		d, err := native.Open(k)
		require.NoError(t, err)
		devs[k], err = gpu.On(d, device.CUDA(k))
		require.NoError(t, err)
	}
	want, err := trainedOn(device.Host(), device.Host())
	require.NoError(t, err)
	beside := func(halves ...[2]*device.Accelerator) {
		var all sync.WaitGroup
		got, errs := make([][]float64, len(halves)), make([]error, len(halves))
		for k, h := range halves {
			all.Go(func() { got[k], errs[k] = trainedOn(h[0], h[1]) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		for _, losses := range got {
			require.InEpsilonSlice(t, want, losses, 1e-4)
		}
	}
	a, b := devs[0], devs[1]
	for range 2 {
		beside([2]*device.Accelerator{a, a}, [2]*device.Accelerator{b, b})                               // a program on each
		beside([2]*device.Accelerator{a, b}, [2]*device.Accelerator{b, a}, [2]*device.Accelerator{b, b}) // and over both, with gradients on their way back
	}
	for k, d := range devs { // what one takes is its own
		room := func(k int) int64 {
			free, _, err := devs[k].Memory().(device.Roomy).Room()
			require.NoError(t, err)
			return free
		}
		before := [2]int64{room(0), room(1)}
		buf, err := d.Alloc(8 << 20)
		require.NoError(t, err)
		require.Equal(t, before[k]-8<<20, room(k))
		require.Equal(t, before[1-k], room(1-k))
		require.NoError(t, buf.Release())
	}
	for _, d := range devs {
		require.NoError(t, d.Close())
	}
}

// trainedOn trains a network whose halves lie on two devices, and gives the losses.
func trainedOn(head, tail device.Device) (losses []float64, err error) {
	values := func(by float32, n int) []float32 {
		v := make([]float32, n)
		for k := range v {
			v[k] = by * float32(k*7%11-5)
		}
		return v
	}
	w1 := autodiff.To(autodiff.New(values(0.1, 5*8), 5, 8), head).RequireGrad()
	w2 := autodiff.To(autodiff.New(values(0.1, 8*3), 8, 3), tail).RequireGrad()
	opt, err := optim.New(optim.SGD{LR: 0.1, Momentum: 0.9}, w1, w2)
	if err != nil {
		return nil, err
	}
	for range 4 {
		x, y := autodiff.New(values(0.2, 4*5), 4, 5), autodiff.New([]int64{0, 2, 1, 2})
		h := autodiff.ReLU(autodiff.MatMul(autodiff.To(x, head), w1))
		loss := autodiff.CrossEntropy(autodiff.MatMul(autodiff.To(h, tail), w2), autodiff.To(y, tail))
		grads, err := autodiff.Backward(loss)
		if err != nil {
			return nil, err
		}
		if err := opt.Step(grads.All()); err != nil {
			return nil, err
		}
		v, err := loss.Item()
		if err != nil {
			return nil, err
		}
		losses = append(losses, v)
	}
	return losses, nil
}
