package devicetest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// Run holds a device to the contract. open gives a device that is fresh or shared; what the suite
// allocates it releases.
func Run(t *testing.T, open func(t *testing.T) device.Device) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, d device.Device)
	}{
		{"bytes come back as they went", roundTrip},
		{"copies within the device and through the host keep the bytes", copies},
		{"transfers beyond a buffer's bounds are refused", bounds},
		{"a released buffer is refused everywhere", released},
		{"a buffer of another device is refused", elsewhere},
		{"references are counted", references},
		{"released memory is used again", reuse},
		{"a disowned buffer is not counted", disowned},
		{"many goroutines may allocate and release at once", concurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			before := d.Stats()
			c.test(t, d)
			after := d.Stats()
			require.Equal(t, before.Live, after.Live, "buffers left")
			require.Equal(t, before.LiveBytes, after.LiveBytes, "bytes left")
		})
	}
}

func alloc(t *testing.T, d device.Device, n int) *device.Buffer {
	t.Helper()
	b, err := d.Alloc(n)
	require.NoError(t, err)
	require.Equal(t, n, b.Len())
	require.Equal(t, d, b.Device())
	return b
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func contents(t *testing.T, b *device.Buffer) []byte {
	t.Helper()
	got := make([]byte, b.Len())
	require.NoError(t, b.Device().Download(got, b, 0))
	return got
}

func roundTrip(t *testing.T, d device.Device) {
	for _, n := range []int{0, 1, 7, 64, 65, 1000, 1 << 16} {
		b, want := alloc(t, d, n), random(n)
		require.NoError(t, d.Upload(b, 0, want))
		require.True(t, bytes.Equal(want, contents(t, b)))
		if n > 2 {
			require.NoError(t, d.Upload(b, n-2, []byte{1, 2}))
			part := make([]byte, 2)
			require.NoError(t, d.Download(part, b, n-2))
			require.Equal(t, []byte{1, 2}, part)
		}
		require.NoError(t, b.Release())
	}
}

func copies(t *testing.T, d device.Device) {
	want := random(300)
	src := alloc(t, d, 300)
	require.NoError(t, d.Upload(src, 0, want))
	for _, to := range []device.Device{d, device.Host(), device.NewSim(device.SimConfig{Index: 99})} {
		dst, back := alloc(t, to, 300), alloc(t, d, 300)
		require.NoError(t, device.Copy(dst, src))
		require.NoError(t, device.Copy(back, dst))
		require.Equal(t, want, contents(t, back))
		require.NoError(t, dst.Release())
		require.NoError(t, back.Release())
	}
	short := alloc(t, d, 299)
	require.ErrorIs(t, device.Copy(short, src), device.ErrBounds)
	require.ErrorIs(t, d.CopyWithin(short, src), device.ErrBounds)
	require.NoError(t, short.Release())
	require.NoError(t, src.Release())
}

func bounds(t *testing.T, d device.Device) {
	b := alloc(t, d, 10)
	for _, off := range []int{-1, 1, 10, 11, 1 << 40} {
		require.ErrorIs(t, d.Upload(b, off, make([]byte, 10)), device.ErrBounds)
		require.ErrorIs(t, d.Download(make([]byte, 10), b, off), device.ErrBounds)
	}
	_, err := d.Alloc(-1)
	require.ErrorIs(t, err, device.ErrBounds)
	require.NoError(t, b.Release())
}

func released(t *testing.T, d device.Device) {
	b, other := alloc(t, d, 10), alloc(t, d, 10)
	require.NoError(t, b.Release())
	require.ErrorIs(t, b.Release(), device.ErrReleased)
	require.ErrorIs(t, d.Upload(b, 0, []byte{1}), device.ErrReleased)
	require.ErrorIs(t, d.Download([]byte{1}, b, 0), device.ErrReleased)
	require.ErrorIs(t, device.Copy(other, b), device.ErrReleased)
	require.ErrorIs(t, device.Copy(b, other), device.ErrReleased)
	require.NoError(t, other.Release())
}

func elsewhere(t *testing.T, d device.Device) {
	other := device.NewSim(device.SimConfig{})
	b := alloc(t, other, 10)
	var named *device.Error
	for _, err := range []error{d.Upload(b, 0, []byte{1}), d.Download([]byte{1}, b, 0), d.CopyWithin(b, b)} {
		require.ErrorIs(t, err, device.ErrElsewhere)
		require.ErrorAs(t, err, &named)
		require.Equal(t, d.ID(), named.Device)
	}
	require.NoError(t, b.Release())
}

func references(t *testing.T, d device.Device) {
	b := alloc(t, d, 10)
	require.True(t, b.Exclusive())
	require.Same(t, b, b.Retain())
	require.False(t, b.Exclusive())
	require.NoError(t, b.Release())
	require.True(t, b.Exclusive())
	require.NoError(t, d.Upload(b, 0, []byte{1}), "the second reference keeps it alive")
	require.NoError(t, b.Release())
	require.ErrorIs(t, b.Release(), device.ErrReleased)
}

func reuse(t *testing.T, d device.Device) {
	before := d.Stats()
	for range 10 {
		require.NoError(t, alloc(t, d, 5000).Release())
	}
	after := d.Stats()
	require.Equal(t, before.Allocs+10, after.Allocs)
	require.GreaterOrEqual(t, after.Reused, before.Reused+9)
	require.Positive(t, after.PooledBytes)
}

func disowned(t *testing.T, d device.Device) {
	before := d.Stats().Live
	b := alloc(t, d, 10)
	require.Equal(t, before+1, d.Stats().Live)
	b.Disown()
	b.Disown()
	require.Equal(t, before, d.Stats().Live)
	require.NoError(t, d.Upload(b, 0, []byte{1}), "it stays usable")
	require.NoError(t, b.Release())
	require.ErrorIs(t, b.Release(), device.ErrReleased)
	reused := d.Stats().Reused
	again := alloc(t, d, 10)
	require.Equal(t, reused+1, d.Stats().Reused, "the last release gives it back")
	require.NoError(t, again.Release())
}

func concurrent(t *testing.T, d device.Device) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				b, err := d.Alloc(g*100 + i)
				require.NoError(t, err)
				fill := bytes.Repeat([]byte{byte(g)}, b.Len())
				require.NoError(t, d.Upload(b, 0, fill))
				require.Equal(t, fill, contents(t, b))
				require.NoError(t, b.Release())
			}
		})
	}
	wg.Wait()
}
