package cudatest

import (
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

func info(r *rig) {
	i := r.d.Info()
	require.NotEmpty(r, i.Name)
	require.GreaterOrEqual(r, i.Arch, 75)
	require.Positive(r, i.Memory)
	require.Positive(r, i.Processor)
	require.GreaterOrEqual(r, i.Shared, 48<<10)
	require.GreaterOrEqual(r, i.Driver, 11080)
}

func memory(r *rig) {
	i := r.d.Info()
	before, err := r.d.Room()
	require.NoError(r, err)
	var held []uintptr
	for _, n := range []int{1, 255, 256, 100_000, 4 << 20} {
		at := r.alloc(n)
		require.Zero(r, at%256)
		require.NotContains(r, held, at)
		held = append(held, at)
	}
	room, err := r.d.Room()
	require.NoError(r, err)
	require.LessOrEqual(r, room, before)
	_, err = r.d.Alloc(1 << 50)
	require.ErrorIs(r, err, device.ErrMemory)
	for _, at := range held {
		require.NoError(r, r.d.Free(at))
	}
	require.Error(r, r.d.Free(held[0]), "it is gone")
	room, err = r.d.Room()
	require.NoError(r, err)
	slack := 0
	if !i.Simulated { // a driver hands small pieces out of large ones, which it may keep; and others use the GPU, too
		slack = 16 << 20
	}
	require.InDelta(r, before, room, float64(slack))
	_, err = r.d.Alloc(64)
	require.NoError(r, err, "a refusal is not the end")
}

func roundTrip(r *rig) {
	for _, n := range []int{1, 3, 256, 70_001} {
		at, in, out := r.alloc(n), r.pin(n), r.pin(n)
		for k := range in {
			in[k] = byte(rand.Uint32())
		}
		want := slices.Clone(in)
		require.NoError(r, r.s.CopyIn(at, in))
		require.NoError(r, r.s.CopyOut(out, at))
		require.NoError(r, r.s.Sync())
		require.Equal(r, want, out)
		require.NoError(r, r.s.CopyOut(out[:n/2], at+uintptr(n-n/2)))
		require.NoError(r, r.s.Sync())
		require.Equal(r, want[n-n/2:], out[:n/2])
		require.NoError(r, r.d.Unpin(in))
		require.NoError(r, r.d.Unpin(out))
		require.NoError(r, r.d.Free(at))
	}
}

func pieces(r *rig) {
	a, b := r.up(1, 2, 3, 4, 5, 6, 7, 8), r.up(repeated(9, 8)...)
	require.NoError(r, r.s.Copy(b+4, a+8, 12))
	require.NoError(r, r.s.Zero(a+12, 8))
	require.Equal(r, []uint32{1, 2, 3, 0, 0, 6, 7, 8}, r.down(a, 8))
	require.Equal(r, []uint32{9, 3, 4, 5, 9, 9, 9, 9}, r.down(b, 8))
}

func pinned(r *rig) {
	a, b := r.pin(100), r.pin(1<<20)
	a[99], b[1<<20-1] = 1, 2
	require.NoError(r, r.d.Unpin(a))
	require.Equal(r, byte(2), b[1<<20-1])
	require.NoError(r, r.d.Unpin(b))
}

// exported opens memory of x at y.
func exported(x, y *rig) {
	at := x.up(1, 2, 3, 4)
	h, err := x.d.Export(at)
	require.NoError(x, err)
	there, err := y.d.Import(h)
	require.NoError(x, err)
	require.Equal(x, []uint32{1, 2, 3, 4}, y.down(there, 4))

	var l cuda.List
	y.fill(&l, there+4, 7, 2)
	require.NoError(x, y.s.Run(&l))
	require.NoError(x, y.s.Sync())
	require.Equal(x, []uint32{1, 7, 7, 4}, x.down(at, 4), "it is the same memory")

	require.Error(x, y.d.Free(there))
	require.NoError(x, y.d.Unimport(there))
	require.Error(x, y.d.Unimport(there))
	require.Equal(x, []uint32{1, 7, 7, 4}, x.down(at, 4))
	require.NoError(x, x.d.Free(at))
	_, err = y.d.Import(h)
	require.Error(x, err, "the memory is gone")
	_, err = y.d.Import(cuda.Handle{1, 2, 3})
	require.Error(x, err)
}

func peers(x, y *rig) {
	reach := func(from, to cuda.Driver) bool {
		within, err := from.(cuda.Neighbor).Reach(to)
		require.NoError(x, err)
		return within
	}
	for range 2 { // to ask again changes nothing
		require.True(x, reach(x.d, y.d))
		require.True(x, reach(x.d, x.d))
	}
	require.False(x, reach(x.d, nil))
	at, there := x.up(1, 2, 3, 4), y.up(5, 6, 7, 8)
	var l cuda.List
	x.fill(&l, at+4, 9, 2)
	require.NoError(x, x.s.Run(&l))
	to := x.s.(cuda.Courier).CopyTo
	require.NoError(x, to(y.d, there, at, 12))
	require.NoError(x, to(y.d, there, at, 0))
	x.fill(&l, at, 1, 4)
	require.NoError(x, x.s.Run(&l))
	require.NoError(x, x.s.Sync())
	require.Equal(x, []uint32{1, 9, 9, 8}, y.down(there, 4), "in the order of the stream")
	within := x.up(0, 0)
	require.NoError(x, to(x.d, within, at, 8))
	require.Equal(x, []uint32{1, 1}, x.down(within, 2), "the same GPU is within reach")
	require.Error(x, to(y.d, there, at, 17))
	require.Error(x, to(y.d, 1, at, 4))
	require.Error(x, to(nil, there, at, 4))
	require.NoError(x, y.d.Free(there))
	require.Error(x, to(y.d, there, at, 4))
}
