package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// live is how many buffers of a device have not been released.
func live(d device.Device) int64 { return d.Stats().Live }

// wanted is the bytes of a buffer, wherever it is.
func wanted(t *testing.T, want []byte, b *device.Buffer) {
	t.Helper()
	got := make([]byte, b.Len())
	require.NoError(t, b.Device().Download(got, b, 0))
	require.Equal(t, want, got)
}

func TestNewMemoryIsZeroAlsoWhereItWasUsedBefore(t *testing.T) {
	for range 2 {
		b, mem, err := host.Zeros(3)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 3), mem)
		copy(mem, "abc")
		wanted(t, []byte("abc"), b)
		host.Release(b)
	}
}

func TestAPartOnTheHostLiesInTheWholeAndHoldsIt(t *testing.T) {
	before := live(device.Host())
	whole, mem, err := host.Zeros(256)
	require.NoError(t, err)
	part, err := host.Part(device.Host(), whole, 64, 3)
	require.NoError(t, err)
	empty, err := host.Part(device.Host(), whole, 256, 0)
	require.NoError(t, err)
	require.Zero(t, empty.Len())
	host.Release(whole)
	require.Equal(t, before+3, live(device.Host()), "the part holds the whole")
	copy(mem[64:], "abc")
	wanted(t, []byte("abc"), part)
	host.Release(part, nil, empty)
	require.Equal(t, before, live(device.Host()), "the whole was released with its last part")
}

func TestAPartElsewhereIsACopy(t *testing.T) {
	sim := device.NewSim(device.SimConfig{})
	before := live(device.Host())
	whole, mem, err := host.Zeros(128)
	require.NoError(t, err)
	copy(mem[64:], "abc")
	part, err := host.Part(sim, whole, 64, 3)
	require.NoError(t, err)
	copied, err := host.CopyTo(device.Host(), whole, 64, 3)
	require.NoError(t, err)
	clear(mem)
	back, err := host.Copy(part)
	require.NoError(t, err)
	require.Equal(t, device.Device(device.Host()), back.Device())
	for _, b := range []*device.Buffer{part, copied, back} {
		wanted(t, []byte("abc"), b)
	}
	host.Release(whole, part, copied, back)
	require.Equal(t, before, live(device.Host()))
	require.Zero(t, live(sim))
}

func TestWhatFailsKeepsNoMemory(t *testing.T) {
	full, closed := device.NewSim(device.SimConfig{Bytes: 64}), device.NewSim(device.SimConfig{})
	onSim, err := closed.Alloc(4)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	before := live(device.Host())
	whole, _, err := host.Zeros(256)
	require.NoError(t, err)
	_, err = host.Part(full, whole, 0, 256)
	require.ErrorIs(t, err, device.ErrMemory)
	_, err = host.Part(device.Host(), onSim, 0, 4)
	require.ErrorIs(t, err, device.ErrNotHost)
	host.Release(whole)
	_, err = host.CopyTo(device.Host(), whole, 0, 4)
	require.ErrorIs(t, err, device.ErrReleased)
	_, err = host.Read(make([]byte, 4), autodiff.Failed(device.ErrClosed))
	require.ErrorIs(t, err, device.ErrClosed)
	require.Equal(t, before, live(device.Host()))
}

func TestGradientsAreScaledWhereTheyAreToBe(t *testing.T) {
	sim := device.NewSim(device.SimConfig{})
	p := autodiff.New([]float32{1, 2}).RequireGrad()
	for _, factor := range []float64{1, 0.5} {
		owner := autodiff.NewArena("gradients")
		b, mem, err := host.Zeros(8)
		require.NoError(t, err)
		copy(device.As[float32](mem), []float32{4, 6})
		g, err := host.Gradient(p, b, sim, factor, owner)
		require.NoError(t, err)
		to := make([]byte, 16)
		value, err := host.Read(to[4:], g)
		require.NoError(t, err)
		require.Equal(
			t, []float32{float32(4 * factor), float32(6 * factor)}, device.As[float32](value),
		)
		require.Equal(t, make([]byte, 4), to[12:], "behind the value nothing is written")
		own, err := g.Acquire()
		require.NoError(t, err)
		require.Equal(t, device.Device(sim), own.Device())
		host.Release(own)
		owner.Free()
		require.Zero(t, live(sim))
	}
	short, _, err := host.Zeros(4)
	require.NoError(t, err)
	_, err = host.Gradient(p, short, device.Host(), 1, nil)
	require.ErrorIs(t, err, device.ErrBounds)
}

func TestForgottenBuffersAreReleasedOnce(t *testing.T) {
	b, _, err := host.Zeros(4)
	require.NoError(t, err)
	all := []*device.Buffer{b.Retain(), nil}
	host.Forget(all)
	host.Forget(all)
	require.Equal(t, []*device.Buffer{nil, nil}, all)
	require.NoError(t, b.Release(), "the test's own reference")
}

func TestPackedParametersLieApartAndAligned(t *testing.T) {
	var p host.Pack
	sizes := []int{0, 1, 63, 64, 65, 4}
	for i, n := range sizes {
		p.Add(10+i, n)
	}
	require.Equal(t, []int{10, 11, 12, 13, 14, 15}, p.Params)
	require.Equal(t, []int{0, 0, 64, 128, 192, 320}, p.At)
	require.Equal(t, 384, p.Bytes)
	p.Lead(65)
	require.Equal(t, []int{128, 128, 192, 256, 320, 448}, p.At)
	require.Equal(t, 512, p.Bytes)
}
