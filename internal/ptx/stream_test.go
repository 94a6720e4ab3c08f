package ptx

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// relay has one stream write and another read, over and over; what goes wrong is left out by the
// test.
func relay(t *testing.T, seed uint64, ready, taken, early bool) (right bool) {
	m := New(Config{Late: rand.New(rand.NewPCG(seed, 7))})
	defer func() { require.NoError(t, m.Close()) }()
	get := func(err error) { require.NoError(t, err) }
	a, err := m.Stream()
	get(err)
	b, err := m.Stream()
	get(err)
	written, err := m.Event()
	get(err)
	read, err := m.Event()
	get(err)
	at, err := m.Alloc(1)
	get(err)
	in, err := m.Pin(8)
	get(err)
	out, err := m.Pin(8)
	get(err)
	for k := range in {
		in[k] = byte(k + 1)
		if taken {
			get(a.Wait(read))
		}
		get(a.CopyIn(at, in[k:k+1]))
		get(a.Record(written))
		if ready {
			get(b.Wait(written))
		}
		get(b.CopyOut(out[k:k+1], at))
		get(b.Record(read))
	}
	if early {
		in[7] = 99
	}
	get(a.Sync())
	get(b.Sync())
	for k, v := range out {
		if v != byte(k+1) {
			return false
		}
	}
	return true
}

func TestLateStreamsShowWhatIsNotWaitedFor(t *testing.T) {
	wrong := map[string]int{}
	for seed := range uint64(20) {
		require.True(t, relay(t, seed, true, true, false), "a right program is right in every order")
		for name, right := range map[string]bool{
			"a read before its write":  relay(t, seed, false, true, false),
			"a write before a read":    relay(t, seed, true, false, false),
			"memory changed too early": relay(t, seed, true, true, true),
		} {
			if !right {
				wrong[name]++
			}
		}
	}
	require.Len(t, wrong, 3)
	for name, n := range wrong {
		require.Greater(t, n, 15, name)
	}
}

func TestHostMemoryOfTransfersIsPinned(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["basic"])
	at := up(r, []float32{1, 2})
	require.ErrorContains(t, r.s.CopyIn(at, make([]byte, 4)), "4 bytes of host memory that is not pinned")
	require.ErrorContains(t, r.s.CopyOut(make([]byte, 4), at), "not pinned")
	pin, err := r.m.Pin(16)
	require.NoError(t, err)
	require.NoError(t, r.s.CopyIn(at, pin[4:12]), "a part will do")
	require.ErrorIs(t, r.s.CopyIn(at, pin), device.ErrBounds)
	require.Error(t, r.m.Unpin(pin[4:]))
	require.NoError(t, r.m.Unpin(pin))
	require.Error(t, r.m.Unpin(pin))
	require.ErrorContains(t, r.s.CopyIn(at, pin[:4]), "not pinned")
}

func TestAGraphThatOutlivesItsMemoryIsFound(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["basic"])
	at := up(r, []float32{1, 2})
	g, err := r.s.Capture(func() error { return r.s.Zero(at, 8) })
	require.NoError(t, err)
	require.NoError(t, r.s.Replay(g))
	require.NoError(t, r.m.Free(at))
	require.ErrorContains(t, r.s.Replay(g), "that were freed")
	require.ErrorIs(t, r.s.Sync(), device.ErrLost)
}

func TestWhatAGPURefusesInACaptureIsRefused(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["basic"])
	e, err := r.m.Event()
	require.NoError(t, err)
	empty, err := r.s.Capture(func() error { return nil })
	require.NoError(t, err)
	_, err = r.s.Capture(func() error {
		for _, err := range []error{r.s.Sync(), r.s.Record(e), r.s.Wait(e), r.s.Replay(empty), r.s.Close()} {
			require.ErrorIs(t, err, errCapture)
		}
		return nil
	})
	require.NoError(t, err)
	require.Panics(t, func() { _, _ = r.s.Capture(func() error { panic("in submit") }) })
	require.NoError(t, r.s.Sync(), "the capture has ended")
	require.NoError(t, empty.Close())
	require.ErrorIs(t, r.s.Replay(empty), device.ErrReleased)
}

func TestThingsOfAnotherMachineAreRefused(t *testing.T) {
	r, other := newRig(t, Config{}, texts(t)["basic"]), newRig(t, Config{}, texts(t)["basic"])
	e, err := other.m.Event()
	require.NoError(t, err)
	require.ErrorIs(t, r.s.Record(e), device.ErrElsewhere)
	g, err := other.s.Capture(func() error { return nil })
	require.NoError(t, err)
	require.ErrorIs(t, r.s.Replay(g), device.ErrElsewhere)
	f, err := other.mod.Func("vec_add", 0)
	require.NoError(t, err)
	var l cuda.List
	l.Add(f, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0)
	require.ErrorIs(t, r.s.Run(&l), cuda.ErrLaunch)
	h, err := other.m.Export(up(other, []float32{1}))
	require.NoError(t, err)
	_, err = r.m.Import(h)
	require.Error(t, err, "they are not of one host")
}
