package ptxtest

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/ptx"
)

// grace is for how long what is given back by others may take.
const grace = 10 * time.Second

// GPU makes a device that has memory and no kernels, and watches it.
func GPU(t testing.TB, id device.ID, c ptx.Config) *device.Accelerator {
	m := New(c)
	g, err := gpumem.NewGPU(m)
	require.NoError(t, err)
	d := device.Over(id, g, 0)
	Watch(t, m, d)
	return d
}

// least is what a buffer takes at least. Kernels that were loaded may take less.
const least = 256

// Watch closes a device when t ends. Before, all its buffers must have been released, and, where
// the machine is not lost, its memory must be as free as it is now.
func Watch(t testing.TB, m *ptx.Machine, d *device.Accelerator) {
	before, err := m.Room()
	require.NoError(t, err)
	t.Cleanup(func() {
		end := time.Now().Add(grace)
		for !unused(m, d, before) && time.Now().Before(end) {
			runtime.GC() // for what belongs to nobody
			time.Sleep(time.Millisecond)
		}
		s := d.Stats()
		require.Zero(t, s.Live, "buffers left on %v", d.ID())
		require.Zero(t, s.LiveBytes)
		if room, err := m.Room(); err == nil {
			require.Less(t, before-room, least, "bytes left on %v", d.ID())
			require.NoError(t, d.Close())
			return
		}
		_ = d.Close() // it says that the device is lost
	})
}

func unused(m *ptx.Machine, d *device.Accelerator, before int) bool {
	if d.Stats().Live > 0 {
		return false
	}
	d.Trim()
	room, err := m.Room()
	return err != nil || before-room < least
}
