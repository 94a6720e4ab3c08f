package autodiff

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

func TestOnAGPUEveryOpAgreesWithTheOracleAndItsGradientWithFiniteDifferences(t *testing.T) {
	dev, err := gpu.On(testgpu.Open(t, ptx.Config{Races: true}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	place := func(x *Tensor) *Tensor { return To(x, dev) }
	for i, c := range cases() {
		args := c.in(rng(uint64(i)))
		b := build(t, c, device.Float64, args)
		f := c.compiledFunc()
		whole := func(in []*Tensor) *Tensor { return f.Call(in...) }
		t.Run(c.name, func(t *testing.T) {
			y, grads := b.oracle(args), b.differences(args)
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float64, place, whole), 1e-6, "float64")
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float32, place, whole), 2e-4, "float32")
		})
	}
}

func TestABadIndexOnAGPUIsToldWithTheUsersLine(t *testing.T) {
	dev, err := gpu.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	w := To(New(make([]float32, 8), 4, 2), dev).RequireGrad()
	ids := To(New([]int64{1, 4}), dev)
	y, at := Embedding(w, ids), thisLine()
	require.NoError(t, y.Err(), "it is not known yet")
	_, err = Values[float32](y)
	require.ErrorContains(t, err, "called at "+at.String())
	require.ErrorIs(t, err, kernels.ErrIndex)
}

func TestARoundedWeightThatCallsShareIsNoBusinessOfTheirInputs(t *testing.T) {
	dev, err := gpu.Config{Precision: gpu.BF16}.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	layer := Define("layer", func(g *Graph, x, w node) node { return g.MatMul(x, w) })
	w := To(New(make([]float32, 8*8), 8, 8), dev).RequireGrad()
	call := func(id int64) *Tensor {
		table := To(New(make([]float32, 4*8), 4, 8), dev).RequireGrad()
		return layer.Call(Embedding(table, To(New([]int64{0, id}), dev)), w)
	}
	bad := call(4)
	var all []*Tensor
	for range 3 {
		all = append(all, call(1)) // which finds the copy that the other made
		_, err = Values[float32](all[len(all)-1])
		require.NoError(t, err)
	}
	_, err = Values[float32](bad)
	require.ErrorIs(t, err, kernels.ErrIndex)
	_, err = Values[float32](w)
	require.NoError(t, err)
	runtime.KeepAlive(all)
}

func TestAParameterThatCameOfABadIndexStaysSpoiledHoweverItIsStepped(t *testing.T) {
	for _, held := range []bool{false, true} { // by whom the old value is kept
		dev, err := gpu.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
		require.NoError(t, err)
		w := Embedding(To(New(make([]float32, 4*2), 4, 2), dev), To(New([]int64{0, 4}), dev)).Detach().RequireGrad()
		grad := To(New(make([]float32, 4), 2, 2), dev)
		var loss *Tensor
		if held {
			loss = Sum(Mul(w, w))
		}
		require.NoError(t, Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*Tensor{w, grad}, 0), "it is not known yet")
		for range 3 {
			_, err = Values[float32](w)
			require.ErrorIs(t, err, kernels.ErrIndex)
			require.ErrorIs(t, Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*Tensor{w, grad}, 0), kernels.ErrIndex)
		}
		runtime.KeepAlive(loss)
		require.NoError(t, dev.Close())
	}
}

// One pass stands still; what it has released lies in the pool, and another pass must not wait for
// that.
func TestAPassOnAGPUGoesOnWhileAnotherStandsStill(t *testing.T) {
	for seed := range uint64(4) {
		m := ptxtest.New(ptx.Config{Late: rand.New(rand.NewPCG(seed, 5))})
		dev, err := gpu.On(m, device.CUDA(0))
		require.NoError(t, err)
		mlp := Define("mlp", func(g *Graph, x node) node { return g.Softmax(g.MatMul(g.Sin(g.MatMul(x, x)), x), 1) })
		x, y := To(New([]float32{1, 2, 3, 4}, 2, 2), dev), To(New([]float32{1, 0, 0, 1}, 2, 2), dev)
		want, err := Values[float32](mlp.Call(y)) // which makes its kernels
		require.NoError(t, err)
		require.NoError(t, dev.Check())
		first := mlp.Call(x)
		release := m.Hold(0)
		end := make(chan []float32)
		go func() {
			defer close(end)
			if v, err := Values[float32](mlp.Call(y)); err == nil {
				end <- v
			}
		}()
		select {
		case v := <-end:
			require.Equal(t, want, v)
		case <-time.After(20 * time.Second):
			release()
			require.Fail(t, "it waits")
		}
		release()
		_, err = Values[float32](first)
		require.NoError(t, err)
		require.NoError(t, dev.Close())
	}
}

func TestAnErrorOfAGPUNamesEachOpAndTheDeviceOnce(t *testing.T) {
	m := ptxtest.New(ptx.Config{Bytes: 1 << 20})
	dev, err := gpu.On(m, device.CUDA(0))
	require.NoError(t, err)
	x := To(New(make([]float32, 4000), 2, 2000), dev)
	mlp := Define("mlp", func(g *Graph, x node) node { return g.Sum(g.Sin(x)) })
	said := func(y *Tensor) string {
		_, text, _ := strings.Cut(y.Err().Error(), ": ") // after the line
		return text
	}
	require.Regexp(t, `^BroadcastTo: device cuda:0: alloc: out of device memory: 1.6 MiB asked for by autodiff.BroadcastTo at \S*gpu_test.go:\d+; `+
		`at most \S+ KiB would have fitted; of 1.0 MiB this process uses 16.0 KiB and other work \S+ \S+; held: 16.0 KiB by autodiff.To at \S*gpu_test.go:\d+$`,
		said(BroadcastTo(x, 100, 2, 2000)))
	require.NoError(t, m.Close())
	for want, y := range map[string]*Tensor{
		"Add: generated kernels: ptx load: device is closed":                          Add(x, x),
		"Scale(2): generated kernels: ptx load: device is closed":                     Scale(x, 2),
		"Softmax(axis=1, log=false): module softmax: ptx load: device is closed":      Softmax(x, 1),
		"mlp: generated kernels: ptx load: device is closed":                          mlp.Call(x),
		"To: device cuda:0: alloc: ptx alloc: device is closed":                       To(New([]float32{1}), dev),
		"To: device cuda:0: download: ptx record: device is closed":                   To(x, device.Host()),
		"To: no such device: the device is nil, a *device.Accelerator":                To(x, (*device.Accelerator)(nil)),
		"To: no such device: the device is nil":                                       To(x, nil),
		"no kernel backend: no such device: the device is nil, a *device.Accelerator": nil,
	} {
		if y == nil {
			_, err := backend.For((*device.Accelerator)(nil))
			require.EqualError(t, err, want)
			continue
		}
		require.Equal(t, want, said(y))
	}
	_ = dev.Close() // its driver is gone
}
