package gpumem_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/soak"
)

func TestAnUploadDoesNotWaitForAnotherProgramsUploadBehindItsKernel(t *testing.T) {
	leak.Check(t)
	for seed := range uint64(6) {
		b := newBench(t, seed, 0)
		x, y, v, w := b.alloc(1), b.alloc(2), b.alloc(3), b.alloc(4)
		big, err := b.d.Alloc(9 << 20)
		require.NoError(t, err)
		require.NoError(t, b.g.Sync())
		require.NoError(t, b.take(y, x))
		release := b.m.Hold(0)
		require.NoError(t, b.d.Upload(x, 0, []byte{11}), "behind the kernel that reads it")
		require.NoError(t, b.take(big, x), "and one that reads that")
		var waiting sync.WaitGroup
		waiting.Go(func() { assert.NoError(t, b.d.Upload(big, 0, make([]byte, 64<<20>>3))) })
		waiting.Go(func() { assert.NoError(t, b.d.Upload(big, 0, bytes.Repeat([]byte{5}, 9<<20))) })
		b.soon("an upload behind other kernels", func() {
			for k := range byte(20) {
				assert.NoError(t, b.take(w, v))
				assert.NoError(t, b.d.Upload(v, 0, []byte{k}), "while a kernel reads it")
				assert.NoError(t, b.take(w, v))
				assert.NoError(t, b.d.Upload(v, 0, bytes.Repeat([]byte{k + 1}, size)))
				if k%4 == 0 {
					assert.Equal(t, k, b.get(w))
				}
			}
		})
		release()
		waiting.Wait()
		require.EqualValues(t, 11, b.get(x))
		require.EqualValues(t, 1, b.get(y))
		b.done(x, y, v, w, big)
	}
}

func TestATrainingLoopsUploadsDoNotStopTheHost(t *testing.T) {
	leak.Check(t)
	b := newBench(t, 1, 0)
	const steps = 200
	ids, labels, rate := b.alloc(0), b.alloc(0), b.alloc(0)
	out := make([]*device.Buffer, steps)
	for k := range out {
		out[k] = b.alloc(0)
	}
	require.NoError(t, b.g.Sync())
	require.NoError(t, b.take(labels, ids))
	require.NoError(t, b.take(rate, ids))
	release := b.m.Hold(0)
	b.soon("a loop", func() {
		for k := range out {
			for _, in := range []*device.Buffer{ids, labels, rate} {
				assert.NoError(t, b.d.Upload(in, 0, []byte{byte(k)}))
			}
			assert.NoError(t, b.take(out[k], ids))
		}
	})
	release()
	for k := range out {
		require.Equal(t, byte(k), b.get(out[k]))
	}
	b.done(append(out, ids, labels, rate)...)
}

// counts is a machine that counts what is made for transfers.
type counts struct {
	*ptx.Machine
	pinned, pins, events atomic.Int64
}

func (c *counts) Pin(n int) ([]byte, error) {
	c.pinned.Add(int64(n))
	c.pins.Add(1)
	return c.Machine.Pin(n)
}

func (c *counts) Event() (cuda.Event, error) {
	c.events.Add(1)
	return c.Machine.Event()
}

func TestUploadsPinAndMakeNothingOnceTheyHaveBegun(t *testing.T) {
	for seed := range uint64(4) {
		var c *counts
		b := over(t, seed, 0, func(m *ptx.Machine) cuda.Driver { c = &counts{Machine: m}; return c })
		x, y := b.alloc(1), b.alloc(2)
		step := func(k int) {
			require.NoError(t, b.d.Upload(x, 0, []byte{byte(k)}))
			require.NoError(t, b.take(y, x))
			require.NoError(t, b.d.Upload(x, 0, []byte{byte(k + 1)}))
			require.NoError(t, b.take(y, x))
			if k%8 == 0 {
				require.Equal(t, byte(k+1), b.get(y))
			}
		}
		for k := range 40 {
			step(k)
		}
		pins, events := c.pins.Load(), c.events.Load()
		for k := range 400 {
			step(k)
		}
		require.Equal(t, []int64{pins, events}, []int64{c.pins.Load(), c.events.Load()})
		b.done(x, y)
	}
}

func TestUploadsOfManyProgramsPinNoMoreThanTheirBound(t *testing.T) {
	var c *counts
	b := over(t, 3, 8, func(m *ptx.Machine) cuda.Driver { c = &counts{Machine: m}; return c })
	before := c.pinned.Load()
	var programs sync.WaitGroup
	for p := range byte(10) {
		x, err := b.d.Alloc(9 << 20)
		require.NoError(t, err)
		y := b.alloc(p)
		require.NoError(t, b.take(y, x), "on a stream of its own, for the most part")
		programs.Go(func() {
			part := make([]byte, x.Len())
			for k := range byte(2) {
				part[0] = 10*k + p
				assert.NoError(t, b.d.Upload(x, 0, part))
				assert.NoError(t, b.take(y, x))
				assert.NoError(t, b.d.Upload(x, 0, part[:1+int(p)<<18]))
			}
			assert.Equal(t, part[0], b.get(y))
			assert.NoError(t, x.Release())
			assert.NoError(t, y.Release())
		})
	}
	programs.Wait()
	pinned := c.pinned.Load() - before
	require.LessOrEqual(t, pinned, int64(64<<20+16<<20+1<<10), "of uploads, of downloads, and for fault records")
	require.Greater(t, pinned, int64(32<<20), "or it is not what bounds it")
	require.NoError(t, b.d.Close())
}

func TestUploadsOfAllSizesArriveWhole(t *testing.T) {
	for seed := range uint64(soak.Cases(4)) {
		r := rand.New(rand.NewPCG(seed, 9))
		b := newBench(t, seed, 1+int(seed%4))
		want := make([]byte, 9<<20)
		x, err := b.d.Alloc(len(want))
		require.NoError(t, err)
		y, err := b.d.Alloc(len(want))
		require.NoError(t, err)
		require.NoError(t, b.d.Upload(x, 0, want))
		for range 30 {
			n := min(1+r.IntN(1<<(8+r.IntN(16))), len(want))
			off := r.IntN(len(want) - n + 1)
			for k := range (n + 4095) / 4096 {
				want[off+4096*k] = byte(r.Uint32())
			}
			require.NoError(t, b.d.Upload(x, off, want[off:off+n]))
			if r.IntN(2) == 0 {
				require.NoError(t, b.take(y, x))
			}
		}
		got := make([]byte, len(want))
		require.NoError(t, b.d.Download(got, x, 0))
		require.True(t, bytes.Equal(want, got), "seed %d", seed)
		b.done(x, y)
	}
}

// noEvent is a driver that once has no memory for an event.
type noEvent struct {
	*ptx.Machine
	fail bool
}

func (d *noEvent) Event() (cuda.Event, error) {
	if d.fail {
		d.fail = false
		return nil, device.ErrMemory
	}
	return d.Machine.Event()
}

func TestAnUploadForWhichThereIsNoEventFailsAndTheNextIsMade(t *testing.T) {
	d := &noEvent{Machine: ptx.New(ptx.Config{})}
	g, err := gpumem.NewGPU(d)
	require.NoError(t, err)
	at, err := g.Take(256)
	require.NoError(t, err)
	d.fail = true
	require.ErrorIs(t, g.Upload(at, []byte{1}), device.ErrMemory)
	require.NoError(t, g.Upload(at, []byte{2}))
	got := make([]byte, 1)
	require.NoError(t, g.Download(got, at))
	require.EqualValues(t, 2, got[0])
	g.Give(at, 256)
	require.NoError(t, g.Close())
}
