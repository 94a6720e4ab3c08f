//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// The driver's graphs are not safe for concurrent use, as its streams are: the fake one refuses a
// second thread.
func TestManyGoroutinesReplayOneGraph(t *testing.T) {
	b := newBench(t)
	inc := find(t, b.d, "add")
	require.NoError(t, b.s.Zero(b.at, 256))
	var l cuda.List
	add(&l, inc, b.at, b.at, 1)
	g, err := b.s.Capture(func() error { return b.s.Run(&l) })
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				assert.NoError(t, b.s.Replay(g))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 400, b.word(t))
	require.NoError(t, g.Close())
}

// A graph's branches run in any order that their dependencies allow: what a recording forgot to
// wait for is seen, sooner or later on a GPU and at once here.
func TestWhatARecordingDoesNotWaitForComesInAnyOrder(t *testing.T) {
	b := newBench(t)
	side, err := b.d.Stream()
	require.NoError(t, err)
	events := make([]cuda.Event, 2)
	for k := range events {
		events[k], err = b.d.Event()
		require.NoError(t, err)
	}
	fork, join := events[0], events[1]
	double := find(t, b.d, "double")
	var first, second cuda.List
	add(&first, double, b.at, 0, 1)
	add(&second, double, b.at, 0, 5)
	require.NoError(t, b.s.Zero(b.at, 256))
	g, err := b.s.Capture(func() error {
		return errors.Join(b.s.Record(fork), side.Wait(fork), side.Run(&first), b.s.Run(&second), side.Record(join), b.s.Wait(join))
	})
	require.NoError(t, err)
	seen := map[uint32]bool{}
	for range 2 {
		require.NoError(t, errors.Join(b.s.Zero(b.at, 256), b.s.Replay(g)))
		seen[b.word(t)] = true
	}
	require.Equal(t, map[uint32]bool{2*1 + 5: true, 2*5 + 1: true}, seen)
	require.NoError(t, g.Close())

	_, err = b.s.Capture(func() error {
		return errors.Join(b.s.Record(fork), side.Wait(fork), side.Run(&first), b.s.Run(&second))
	})
	require.ErrorContains(t, err, "CUDA error 904", "the side stream was not joined")
	require.NoError(t, errors.Join(side.Sync(), b.s.Sync()), "and the recording is over nevertheless")
	require.NoError(t, errors.Join(fork.Close(), join.Close(), side.Close()))
}

func TestAnEventOfARecordingIsNotWaitedForOutsideOfIt(t *testing.T) {
	b := newBench(t)
	side, err := b.d.Stream()
	require.NoError(t, err)
	e, err := b.d.Timer()
	require.NoError(t, err)
	_, err = b.s.Capture(func() error {
		require.NoError(t, b.s.Record(e))
		require.ErrorContains(t, e.Sync(), "CUDA error 907")
		return nil
	})
	require.ErrorContains(t, err, "CUDA error 901")
	_, err = b.s.Capture(func() error { return b.s.Record(e) })
	require.NoError(t, err)
	require.ErrorContains(t, side.Wait(e), "CUDA error 907")
	_, err = e.Since(e)
	require.ErrorContains(t, err, "CUDA error 907")

	require.NoError(t, side.Record(e))
	_, err = b.s.Capture(func() error {
		require.ErrorContains(t, b.s.Wait(e), "CUDA error 905", "what is recorded does not wait for what is not")
		return nil
	})
	require.ErrorContains(t, err, "CUDA error 901")
	require.NoError(t, errors.Join(b.s.Wait(e), e.Sync(), e.Close(), side.Close(), b.s.Sync()))
}

func TestALaunchWithoutMemoryIsToldAsSuchAndTheNextIsRecorded(t *testing.T) {
	b := newBench(t)
	var l cuda.List
	add(&l, find(t, b.d, "add"), b.at, b.at, 1)
	record := func() error { return b.s.Run(&l) }
	gpu.Set("refuse", 2)
	_, err := b.s.Capture(record)
	require.ErrorIs(t, err, device.ErrMemory)
	require.NoError(t, b.s.Zero(b.at, 256))
	g, err := b.s.Capture(record)
	require.NoError(t, err)
	require.NoError(t, b.s.Replay(g))
	require.EqualValues(t, 1, b.word(t))
	require.NoError(t, g.Close())
}
