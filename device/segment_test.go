package device_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

const big = 1 << 20

// sharing skips a test where no memory is shared.
func sharing(t testing.TB) {
	t.Helper()
	b := host(t, big)
	_, ok := b.Segment()
	require.NoError(t, b.Release())
	if !ok {
		t.Skip("this system shares no memory")
	}
}

func host(t testing.TB, n int) *device.Buffer {
	t.Helper()
	b, err := device.Host().Alloc(n)
	require.NoError(t, err)
	return b
}

func TestEachLargeBufferOfTheHostHasASegmentForItself(t *testing.T) {
	sharing(t)
	r := rand.New(rand.NewPCG(1, 1))
	type held struct {
		b    *device.Buffer
		mark byte
	}
	var all []held
	check := func(h held) {
		mem, err := h.b.Host()
		require.NoError(t, err)
		require.Equal(t, len(mem), bytes.Count(mem, []byte{h.mark}))
		s, ok := h.b.Segment()
		require.Equal(t, h.b.Len() > 48<<10, ok)
		if ok {
			require.LessOrEqual(t, h.b.Len(), s.Bytes())
		}
	}
	for i := range 2000 { // what lies in two buffers at once is found by its marks
		if len(all) > 0 && (r.IntN(2) == 0 || len(all) > 30) {
			k := r.IntN(len(all))
			check(all[k])
			require.NoError(t, all[k].b.Release())
			all[k] = all[len(all)-1]
			all = all[:len(all)-1]
			continue
		}
		n := 1 << r.IntN(22)
		h := held{host(t, n/2+r.IntN(n/2+1)), byte(i)}
		mem, err := h.b.Host()
		require.NoError(t, err)
		for k := range mem {
			mem[k] = h.mark
		}
		all = append(all, h)
	}
	for _, h := range all {
		check(h)
		require.NoError(t, h.b.Release())
	}
}

func TestOnlyTheHostSharesMemory(t *testing.T) {
	b, err := device.NewSim(device.SimConfig{}).Alloc(big)
	require.NoError(t, err)
	_, ok := b.Segment()
	require.False(t, ok)
	require.NoError(t, b.Release())
	h := host(t, big)
	require.NoError(t, h.Release())
	_, ok = h.Segment()
	require.False(t, ok, "a released buffer lies nowhere")
}

func TestForeignMemoryCannotBeWrittenAndGoesBackOnce(t *testing.T) {
	before := device.Host().Stats()
	mem := device.Bytes(make([]float64, 100))
	mem[3] = 7
	var gone atomic.Int32
	b := device.Foreign(mem, nil, func() { gone.Add(1) })
	require.Equal(t, before.Live+1, device.Host().Stats().Live)
	require.Equal(t, before.LiveBytes+800, device.Host().Stats().LiveBytes)
	require.False(t, b.Exclusive())
	require.True(t, b.ReadOnly())
	require.ErrorIs(t, device.Host().Upload(b, 0, []byte{1}), device.ErrReadOnly)
	sim, err := device.NewSim(device.SimConfig{}).Alloc(800)
	require.NoError(t, err)
	require.ErrorIs(t, device.Copy(b, sim), device.ErrReadOnly)
	require.NoError(t, device.Copy(sim, b))
	require.NoError(t, sim.Release())
	got, err := b.Retain().Host()
	require.NoError(t, err)
	require.Equal(t, byte(7), got[3])
	require.NoError(t, b.Release())
	require.Zero(t, gone.Load())
	require.NoError(t, b.Release())
	require.ErrorIs(t, b.Release(), device.ErrReleased)
	require.Equal(t, int32(1), gone.Load())
	require.Equal(t, before.Live, device.Host().Stats().Live)
	require.Equal(t, before.LiveBytes, device.Host().Stats().LiveBytes)
}

func TestDisownedForeignMemoryGoesBackOnceWhoeverIsFirst(t *testing.T) {
	var gone atomic.Int32
	func() {
		device.Foreign(make([]byte, 64), nil, func() { gone.Add(1) }).Disown()
	}()
	require.Eventually(t, func() bool { runtime.GC(); return gone.Load() == 1 }, 10*time.Second, time.Millisecond)
	b := device.Foreign(make([]byte, 64), nil, func() { gone.Add(1) })
	b.Disown()
	require.NoError(t, b.Release())
	runtime.GC()
	require.Equal(t, int32(2), gone.Load())
}

// While a device works on a disowned buffer's memory the buffer is not garbage, though nobody else
// knows it any more.
func TestMemoryThatIsInUseIsNotCollected(t *testing.T) {
	var gone atomic.Bool
	launch := func() { // a frame of its own: nothing here holds the buffer
		b := device.Foreign(make([]byte, 64), nil, func() { gone.Store(true) })
		b.Disown()
		require.NoError(t, device.Host().Launch([]*device.Buffer{b}, func([][]byte) error {
			for range 3 {
				runtime.GC()
				time.Sleep(time.Millisecond) // clean-ups run on a goroutine of the runtime's
			}
			require.False(t, gone.Load())
			return nil
		}))
	}
	launch()
	require.Eventually(t, func() bool { runtime.GC(); return gone.Load() }, 10*time.Second, time.Millisecond)
}

func TestGarbageOutsideTheHeapIsCollectedInTime(t *testing.T) {
	sharing(t)
	for range 10_000 { // 10 GB, of which the collector sees next to nothing
		b := host(t, big)
		mem, err := b.Host()
		require.NoError(t, err)
		for i := 0; i < len(mem); i += 64 << 10 {
			mem[i] = 1
		}
		runtime.KeepAlive(b)
		b.Disown()
	}
	require.Less(t, device.Host().Stats().SharedBytes, int64(5<<30))
}
