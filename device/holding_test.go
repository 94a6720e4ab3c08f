package device_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

func TestAMemoryErrorSaysAllThatIsKnown(t *testing.T) {
	e := &device.MemoryError{Asked: 3 << 20, Free: -1, Err: errors.Join(device.ErrMemory, errors.New("the driver's words"))}
	require.EqualError(t, e, "out of device memory: 3.0 MiB asked for")
	require.ErrorIs(t, e, device.ErrMemory)
	e = &device.MemoryError{
		Asked: 1 << 30, By: device.Holding{At: "train.go:9", By: "autodiff.To"}, Total: 80 << 30, Free: 512, Used: 60 << 30, Cached: 1 << 30, Err: device.ErrMemory,
		Batch:    &device.Batch{Had: 128, Fits: 96, Backward: true},
		Holdings: []device.Holding{{"train.go:9", "autodiff.To", 50 << 30, 2}, {"", "ctx.Backward", 10 << 30, 1}, {}, {}, {}, {}, {}},
	}
	require.EqualError(t, e, "out of device memory: 1.0 GiB asked for by autodiff.To at train.go:9; at most 512 bytes would have fitted; "+
		"this call with its backward would have fitted with batch 96 in place of 128, with all else that is held as it is; "+
		"of 80.0 GiB this process uses 60.0 GiB, 1.0 GiB kept for reuse and other work 19.0 GiB; held: 50.0 GiB by autodiff.To at train.go:9 (2 pieces), "+
		"10.0 GiB by ctx.Backward, 0 bytes by others, 0 bytes by others, 0 bytes by others, and 2 more")
}

func TestASimulatedDeviceSaysWhoHoldsItsMemory(t *testing.T) {
	d := device.NewSim(device.SimConfig{Bytes: 1000})
	b, err := d.Alloc(600)
	require.NoError(t, err)
	_, err = d.Alloc(600)
	var e *device.MemoryError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, []int64{600, 400, 1000}, []int64{e.Asked, e.Free, e.Total})
	require.Len(t, e.Holdings, 1)
	require.Contains(t, e.Holdings[0].At, "holding_test.go:")
	require.NoError(t, b.Release())
	require.Empty(t, device.Held(d))
	b, err = d.Alloc(600)
	require.NoError(t, err)
	require.Len(t, device.Held(d), 1)
	require.NoError(t, b.Release())
}

func BenchmarkAllocOnAnAccelerator(b *testing.B) {
	d := device.Over(device.CUDA(0), newFar(1<<20), 0)
	for b.Loop() {
		buf, err := d.Alloc(4096)
		if err != nil {
			b.Fatal(err)
		}
		_ = buf.Release()
	}
}
