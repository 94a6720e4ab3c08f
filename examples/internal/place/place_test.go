package place

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

func TestTheNamedDeviceIsOpenedAndAutoFallsBackToTheCPU(t *testing.T) {
	none := errors.New("no GPU in this test")
	var opened []int
	two := gpus{func() (int, error) { return 1, nil }, func(n int) (cuda.Driver, error) {
		if n > 1 {
			return nil, none
		}
		opened = append(opened, n)
		return ptxtest.New(ptx.Config{}), nil
	}, true}
	empty := gpus{func() (int, error) { return 0, none }, func(int) (cuda.Driver, error) { return nil, none }, true}
	without := gpus{empty.which, empty.open, false}
	for _, c := range []struct {
		of         gpus
		name, says string
		id         device.ID
	}{
		{two, "auto", "on GPU 1, PTX machine; all workers call theirs cuda:0", GPU}, {two, "cuda", "on GPU 1, PTX machine; all workers call theirs cuda:0", GPU},
		{two, "cuda:0", "on cuda:0, PTX machine", GPU}, {two, "cuda:1", "on cuda:1, PTX machine", device.CUDA(1)},
		{two, "cpu", "on the CPU", device.ID{}}, {empty, "auto", "on the CPU: no GPU in this test", device.ID{}},
		{without, "auto", "on the CPU", device.ID{}},
	} {
		d, says, err := c.of.choose(c.name)
		require.NoError(t, err, c.name)
		require.Equal(t, c.says, says)
		require.Equal(t, c.id, d.ID())
		onGPU := c.id.Kind == device.KindCUDA
		require.Equal(t, onGPU, len(d.Extra()) == 1 && len(d.Maps("worker1")) == 1)
		all, err := device.NewSet(d.Extra()...)
		require.NoError(t, err)
		require.Equal(t, c.id, of(all).ID())
		if onGPU {
			require.Equal(t, device.Map{c.id: c.id}, d.Maps("worker1")["worker1"])
			_, err := d.Alloc(-1)
			require.ErrorContains(t, err, "device "+c.id.String()+": ", "errors have the name that was given")
		}
		require.NoError(t, d.Close())
	}
	require.Equal(t, []int{1, 1, 0, 1}, opened)
	for _, name := range []string{"cuda", "cuda:0"} {
		_, _, err := empty.choose(name)
		require.ErrorIs(t, err, none)
	}
	_, _, err := two.choose("cuda:7")
	require.ErrorIs(t, err, none)
	for _, name := range []string{"", "gpu", "cuda:", "cuda:x", "cuda:-1", "sim:0"} {
		_, _, err := two.choose(name)
		require.ErrorContains(t, err, "expected auto, cpu, cuda or cuda:N")
	}
}

func TestAWorkersPeersAreAllOthers(t *testing.T) {
	require.Equal(t, []string{"worker0", "worker2"}, Others(1, 3))
	require.Empty(t, Others(0, 1))
	require.Empty(t, Others(0, 0))
}

func TestWhatAGPUFoundWrongIsToldWhenItIsSettled(t *testing.T) {
	require.NoError(t, Settle(device.Host()))
	g, err := gpumem.NewGPU(ptxtest.New(ptx.Config{}))
	require.NoError(t, err)
	d := device.Over(GPU, g, 0)
	require.NoError(t, Settle(d))
	require.NoError(t, g.Upload(g.FaultAddr(), []byte{1}))
	var fault *gpumem.FaultError
	require.ErrorAs(t, Settle(d), &fault)
	require.NoError(t, d.Close())
	require.ErrorIs(t, Settle(d), device.ErrClosed)
}
