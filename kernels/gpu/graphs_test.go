package gpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

func TestARoutineThatRunsAgainOnTheSameMemoryIsReplayedAsAGraph(t *testing.T) {
	c := &counted{Driver: ptxtest.New(ptx.Config{Late: rand.New(rand.NewPCG(1, 1))})}
	d := on(t, c)
	r := chain(t, d, 5)
	var bufs [3]*device.Buffer
	for k := range bufs {
		bufs[k] = operand(t, d, float32(k), 0, 0, 7)
	}
	for run := range 6 {
		for k, b := range bufs { // in turns
			require.NoError(t, r.Run([]*device.Buffer{b}))
			n := float32(5 * (run + 1))
			require.Equal(t, []float32{float32(k) + n, n, n, 7 + n}, result(t, d, b))
		}
	}
	require.Equal(t, []int64{3, 15}, []int64{c.captures.Load(), c.replays.Load()})
	require.Equal(t, int64(3+3), c.runs.Load(), "the first of each, and what was recorded")
	for _, b := range bufs {
		require.NoError(t, b.Release())
	}
}

func TestARoutineWhoseMemoryDoesNotComeBackMakesNoGraphsForAWhile(t *testing.T) {
	c := &counted{Driver: ptxtest.New(ptx.Config{})}
	d := on(t, c)
	r := chain(t, d, 5)
	var last *device.Buffer
	for k := range graphsVain + 20 {
		b := operand(t, d, float32(k), 0, 0, 0)
		for range 2 {
			require.NoError(t, r.Run([]*device.Buffer{b}))
		}
		require.Equal(t, []float32{float32(k) + 10, 10, 10, 10}, result(t, d, b))
		defer b.Release() //nolint:errcheck // kept until the end, so that the next lies elsewhere
		last = b
	}
	require.Equal(t, int64(graphsVain), c.captures.Load())
	replays := c.replays.Load()
	for range graphsRest {
		require.NoError(t, r.Run([]*device.Buffer{last}))
	}
	require.Equal(t, int64(graphsVain+1), c.captures.Load(), "it looks again")
	require.Greater(t, c.replays.Load(), replays)
}

// stiff is a driver that cannot record for so many times, and says why.
type stiff struct {
	cuda.Driver
	times, tried *atomic.Int64
	why          error
}

func cannot(why error, times int64) stiff {
	d := stiff{ptxtest.New(ptx.Config{}), new(atomic.Int64), new(atomic.Int64), why}
	d.times.Store(times)
	return d
}

func (d stiff) Stream() (cuda.Stream, error) {
	s, err := d.Driver.Stream()
	return stiffStream{s, d}, err
}

type stiffStream struct {
	cuda.Stream
	of stiff
}

func (s stiffStream) Capture(submit func() error) (cuda.Graph, error) {
	s.of.tried.Add(1)
	if s.of.times.Add(-1) >= 0 {
		return nil, s.of.why
	}
	return s.Stream.Capture(submit)
}

func TestWhereNothingCanBeRecordedRoutinesRunAllTheSame(t *testing.T) {
	c := cannot(errors.New("cannot record"), 1)
	d := on(t, c)
	r, b := chain(t, d, 5), operand(t, d, 0, 0, 0, 0)
	const runs = 2*graphsRest + 4
	for range runs {
		require.NoError(t, r.Run([]*device.Buffer{b}))
	}
	require.Equal(t, []float32{5 * runs, 5 * runs, 5 * runs, 5 * runs}, result(t, d, b))
	require.EqualValues(t, 1, c.tried.Load(), "and it is not tried again")
	require.NoError(t, b.Release())
}

func TestWhereThereIsNoMemoryForAGraphItIsTriedAgainAfterARest(t *testing.T) {
	c := cannot(fmt.Errorf("cuGraphInstantiate: %w", device.ErrMemory), 2)
	d := on(t, c)
	r := chain(t, d, 5)
	var bufs [3]*device.Buffer
	for k := range bufs {
		bufs[k] = operand(t, d, 0, 0, 0, 0)
	}
	runs := 0
	run := func() {
		require.NoError(t, r.Run(bufs[runs%len(bufs):][:1]))
		runs++
	}
	for c.tried.Load() == 0 {
		run()
	}
	require.Equal(t, 4, runs)
	for range graphsRest {
		require.EqualValues(t, 1, c.tried.Load(), "it rests, whatever the memory is")
		run()
	}
	run()
	require.EqualValues(t, 2, c.tried.Load())
	for range graphsRest + 3 {
		run()
	}
	require.EqualValues(t, 2+3, c.tried.Load(), "now there is memory")
	before := runs
	for range 9 {
		run()
	}
	require.EqualValues(t, 2+3, c.tried.Load())
	require.Equal(t, before+9, runs)
	for k, b := range bufs {
		n := float32(5 * ((runs - k + 2) / 3))
		require.Equal(t, []float32{n, n, n, n}, result(t, d, b))
		require.NoError(t, b.Release())
	}
}
