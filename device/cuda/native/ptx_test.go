//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/cudatest"
)

func TestTheDriverIsADriver(t *testing.T) {
	cudatest.Run(t, cudatest.Suite{
		Open: func(t *testing.T) cuda.Driver {
			t.Cleanup(gpu.Mend)
			d, err := native.Open(0)
			require.NoError(t, err)
			return d
		},
		Peers: func(t *testing.T) (a, b cuda.Driver) {
			gpu.Set("peers", 1)
			t.Cleanup(func() { gpu.Set("peers", 0) })
			var err [2]error
			a, err[0] = native.Open(0)
			b, err[1] = native.Open(1)
			require.NoError(t, errors.Join(err[:]...))
			return a, b
		},
		Faults: true,
	})
}

func TestAGPUThatCannotAccessAnotherSaysSo(t *testing.T) {
	a, err := native.Open(0)
	require.NoError(t, err)
	b, err := native.Open(1)
	require.NoError(t, err)
	within, err := a.(cuda.Neighbor).Reach(b)
	require.NoError(t, err)
	require.False(t, within)
	again, err := native.Open(0)
	require.NoError(t, err)
	within, err = a.(cuda.Neighbor).Reach(again)
	require.NoError(t, err)
	require.True(t, within, "it is the same GPU")
	require.NoError(t, errors.Join(b.Close(), again.Close()))
	_, err = a.(cuda.Neighbor).Reach(b)
	require.ErrorIs(t, err, device.ErrClosed)
	require.NoError(t, a.Close())
}

func TestPTXRunsOverTheDriversMemory(t *testing.T) {
	text, err := os.ReadFile("../../../internal/ptx/testdata/basic.ptx")
	require.NoError(t, err)
	b := newBench(t)
	m, err := b.d.Load(text)
	require.NoError(t, err)
	f, err := m.Func("vec_add", 0)
	require.NoError(t, err)
	out, err := b.d.Alloc(256)
	require.NoError(t, err)
	for k := range 64 {
		binary.LittleEndian.PutUint32(b.pinned[4*k:], math.Float32bits(float32(k)))
	}
	var l cuda.List
	launch := func(n uint64) error {
		l.Reset()
		l.Add(f, [3]uint32{3, 1, 1}, [3]uint32{32, 1, 1}, 0)
		l.Addr(b.at)
		l.Addr(b.at)
		l.Addr(out)
		l.U64(n)
		return b.s.Run(&l)
	}
	require.NoError(t, errors.Join(b.s.CopyIn(b.at, b.pinned), launch(64), b.s.CopyOut(b.pinned, out), b.s.Sync()))
	for k := range 64 {
		require.Equal(t, float32(2*k), math.Float32frombits(binary.LittleEndian.Uint32(b.pinned[4*k:])))
	}
	l.Launches[0].Len -= 8
	require.ErrorIs(t, b.s.Run(&l), cuda.ErrLaunch, "what the parameters are is known from the text")
	require.NoError(t, launch(65))
	require.ErrorIs(t, b.s.Sync(), device.ErrLost, "it read behind its memory")
	gpu.Mend()
	require.NoError(t, errors.Join(launch(64), b.s.Sync()))
	require.NoError(t, errors.Join(b.d.Free(out), m.Unload()))
	_, err = b.d.Load([]byte(".version 7.8\n.target sm_75\n.address_size 64\nnonsense"))
	require.ErrorIs(t, err, cuda.ErrImage)
	require.ErrorContains(t, err, "line 4")
}
