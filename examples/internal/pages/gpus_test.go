package pages

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/kernels/gpu"
)

func meanOnGPUs(c context.Context, g *collective.Group, dev *device.Accelerator, grads []*device.Buffer) error {
	d, err := gpus.On(dev) // this member's GPU
	if err != nil {
		return err
	}
	a, err := gpus.Attach(c, g, d, gpus.Config{NCCL: gpus.Auto}) // all members call it, and Close
	if err != nil {
		return err
	}
	defer a.Close(c)
	fmt.Println(a.Ways(), a.Without()) // by what the group goes, and why not by more
	_, err = g.AllReduceBuffers(c, collective.Mean, device.Float32, grads...).Wait(c)
	return err
}

func TestTheMeanOfBuffersOnGPUsIsMadeThere(t *testing.T) {
	host := new(ptx.Host)
	var all sync.WaitGroup
	for r, w := range rpctest.World(t, rpctest.Net(), 2) {
		all.Go(func() {
			dev, err := gpu.On(ptxtest.New(ptx.Config{Host: host}), device.CUDA(0))
			if !assert.NoError(t, err) {
				return
			}
			defer dev.Close() //nolint:errcheck // the interpreter's
			b, err := dev.Alloc(8)
			if !assert.NoError(t, err) {
				return
			}
			defer b.Release() //nolint:errcheck // ours
			assert.NoError(t, dev.Upload(b, 0, device.Bytes([]float32{1, 2 * float32(r)})))
			g, err := collective.Open(t.Context(), w, "g")
			if !assert.NoError(t, err) {
				return
			}
			assert.NoError(t, meanOnGPUs(t.Context(), g, dev, []*device.Buffer{b}))
			got := make([]float32, 2)
			assert.NoError(t, dev.Download(device.Bytes(got), b, 0))
			assert.Equal(t, []float32{1, 1}, got)
			for _, e := range g.Trace() {
				assert.Contains(t, []string{"", "CUDA IPC"}, e.Way)
			}
			assert.NoError(t, g.Close())
		})
	}
	all.Wait()
	require.False(t, t.Failed())
}
