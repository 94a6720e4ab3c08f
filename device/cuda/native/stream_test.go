//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
)

func TestAListRunsInOrderWithItsArguments(t *testing.T) {
	b := newBench(t)
	double := find(t, b.d, "double")
	require.NoError(t, b.s.Zero(b.at, 256))
	var l cuda.List
	var want uint32
	for n := range uint32(20) {
		add(&l, double, b.at, 0, n)
		want = 2*want + n
	}
	require.NoError(t, b.s.Run(&l))
	l.Reset() // nothing of it is kept
	for range 20 {
		add(&l, double, 0, 0, 1)
	}
	require.Equal(t, want, b.word(t))
	require.NoError(t, b.s.Run(&cuda.List{}))
}

type stranger struct{}

func (stranger) Name() string { return "stranger" }

func TestOneBadLaunchRefusesItsWholeList(t *testing.T) {
	b := newBench(t)
	other, err := native.Open(1)
	require.NoError(t, err)
	defer other.Close()
	double, foreign := find(t, b.d, "double"), find(t, other, "double")
	require.NoError(t, b.s.Zero(b.at, 256))
	for text, spoil := range map[string]func(l *cuda.Launch){
		"a grid of [0 1 1]":        func(l *cuda.Launch) { l.Grid[0] = 0 },
		"a grid of [1 65536 1]":    func(l *cuda.Launch) { l.Grid[1] = 65536 },
		"a grid of [1 1 65536]":    func(l *cuda.Launch) { l.Grid[2] = 65536 },
		"grid of [2147483648 1 1]": func(l *cuda.Launch) { l.Grid[0] = 1 << 31 },
		"a block of [1 0 1]":       func(l *cuda.Launch) { l.Block[1] = 0 },
		"a block of [1025 1 1]":    func(l *cuda.Launch) { l.Block[0] = 1025 },
		"a block of [32 33 1]":     func(l *cuda.Launch) { l.Block = [3]uint32{32, 33, 1} },
		"a block of [1 1 65]":      func(l *cuda.Launch) { l.Block[2] = 65 },
		"1 bytes of dynamic":       func(l *cuda.Launch) { l.Shared = 1 },
		"its parameters have 20":   func(l *cuda.Launch) { l.Len -= 4 },
		"not within the list's":    func(l *cuda.Launch) { l.Off = 1 << 40 },
		"arguments are not within": func(l *cuda.Launch) { l.Len = -1 },
		"on another GPU":           func(l *cuda.Launch) { l.Func = foreign },
		"stranger is not a kernel": func(l *cuda.Launch) { l.Func = stranger{} },
		"<nil> is not a kernel":    func(l *cuda.Launch) { l.Func = nil },
	} {
		var l cuda.List
		add(&l, double, b.at, 0, 1)
		add(&l, double, b.at, 0, 1)
		spoil(&l.Launches[1])
		err := b.s.Run(&l)
		require.ErrorIs(t, err, cuda.ErrLaunch, text)
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "number 1 of the list")
		require.Zero(t, b.word(t), "the launch before must not have run")
	}
}

func TestADriverThatDoesNotTellParametersChecksThemItself(t *testing.T) {
	gpu.Set("old", 1)
	defer gpu.Set("old", 0)
	b := newBench(t)
	var l cuda.List
	add(&l, find(t, b.d, "double"), b.at, 0, 1)
	l.Launches[0].Len -= 4
	err := b.s.Run(&l)
	require.ErrorContains(t, err, "cuLaunchKernel: CUDA error 1")
	require.ErrorContains(t, err, "double")
}

func TestALaunchThatTheDriverRefusesIsNamed(t *testing.T) {
	b := newBench(t)
	var l cuda.List
	add(&l, find(t, b.d, "add"), b.at, b.at, 1)
	gpu.Set("refuse", 701)
	err := b.s.Run(&l)
	require.ErrorIs(t, err, cuda.ErrLaunch)
	require.ErrorContains(t, err, "add; it needs more registers")
	require.NoError(t, b.s.Run(&l))
	require.NoError(t, b.s.Sync())
}

func TestAFaultLosesItsGPUAndNoOther(t *testing.T) {
	b := newBench(t)
	other, err := native.Open(1)
	require.NoError(t, err)
	defer other.Close()
	var l cuda.List
	add(&l, find(t, b.d, "wild"), b.at, b.at, 1)
	require.NoError(t, b.s.Run(&l), "it has not run yet")
	err = b.s.Sync()
	require.ErrorIs(t, err, device.ErrLost)
	require.ErrorContains(t, err, "CUDA error 700")
	require.ErrorContains(t, err, "address that is not there")
	_, err = b.d.Alloc(1)
	require.ErrorIs(t, err, device.ErrLost)
	require.ErrorIs(t, b.s.Run(&l), device.ErrLost)
	e, err := b.d.Event()
	require.ErrorIs(t, err, device.ErrLost)
	require.Nil(t, e)
	at, err := other.Alloc(1)
	require.NoError(t, err)
	require.NoError(t, other.Free(at))
	for _, code := range []int{214, 702, 710, 715, 716, 719, 999} {
		gpu.Mend()
		gpu.Set("fault", code)
		require.NoError(t, b.s.Run(&l))
		require.ErrorIs(t, b.s.Sync(), device.ErrLost, code)
	}
}

// The driver tells of a fault again when something is given back, and by then everybody knows.
func TestALostGPUIsClosedAsAnyOther(t *testing.T) {
	defer gpu.Mend()
	d, err := native.Open(1)
	require.NoError(t, err)
	s, err := d.Stream()
	require.NoError(t, err)
	_, err = d.(cuda.Multiplier).Product(cuda.ProductSpec{M: 1, N: 1, K: 1})
	require.NoError(t, err)
	var l cuda.List
	add(&l, find(t, d, "wild"), 0, 0, 1)
	require.NoError(t, s.Run(&l))
	require.ErrorIs(t, s.Sync(), device.ErrLost)
	require.NoError(t, s.Close())
	require.NoError(t, d.Close())
}

func TestManyGoroutinesSubmitToOneStream(t *testing.T) {
	b := newBench(t)
	inc := find(t, b.d, "add")
	require.NoError(t, b.s.Zero(b.at, 256))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var l cuda.List
			for n := range 20 {
				l.Reset()
				for range n % 3 {
					add(&l, inc, b.at, b.at, 1)
				}
				if err := b.s.Run(&l); err != nil {
					panic(err)
				}
				if n%5 == 0 {
					if err := b.s.Sync(); err != nil {
						panic(err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 8*19, b.word(t)) // 20 lists of 0, 1, 2, 0, … launches are 19
}

func TestAGraphRunsWhatWasRecordedWithItsArguments(t *testing.T) {
	b := newBench(t)
	double := find(t, b.d, "double")
	require.NoError(t, b.s.Zero(b.at, 256))
	var l cuda.List
	g, err := b.s.Capture(func() error {
		for n := range uint32(3) {
			l.Reset()
			add(&l, double, b.at, 0, n)
			if err := b.s.Run(&l); err != nil {
				return err
			}
		}
		_, err := b.d.Room() // what is no work of a stream may happen meanwhile
		return err
	})
	require.NoError(t, err)
	require.Zero(t, b.word(t), "nothing runs while it is recorded")
	second, err := b.d.Stream()
	require.NoError(t, err)
	var want uint32
	for _, s := range []cuda.Stream{b.s, b.s, second} {
		require.NoError(t, s.Replay(g))
		require.NoError(t, s.Sync())
		for n := range uint32(3) {
			want = 2*want + n
		}
		require.Equal(t, want, b.word(t))
	}
	require.NoError(t, second.Close())
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	require.ErrorIs(t, b.s.Replay(g), device.ErrClosed)
	require.ErrorIs(t, b.s.Replay(nil), device.ErrElsewhere)
}

func TestAStreamIsItselfAgainAfterARecordingThatFails(t *testing.T) {
	b := newBench(t)
	wrong := errors.New("changed my mind")
	_, err := b.s.Capture(func() error { return errors.Join(b.s.Zero(b.at, 256), wrong) })
	require.ErrorIs(t, err, wrong)
	require.PanicsWithValue(t, "oh", func() { _, _ = b.s.Capture(func() error { panic("oh") }) })
	_, err = b.s.Capture(func() error { _ = b.s.Sync(); return nil }) // which a recording cannot have
	require.ErrorContains(t, err, "CUDA error 901")
	_, err = b.s.Capture(func() error {
		_, err := b.s.Capture(func() error { return nil })
		return err
	})
	require.ErrorContains(t, err, "cuStreamBeginCapture")
	require.NoError(t, b.s.Zero(b.at, 256))
	require.Zero(t, b.word(t))
}

func TestARecordingFollowsEventsToOtherStreams(t *testing.T) {
	b := newBench(t)
	side, err := b.d.Stream()
	require.NoError(t, err)
	fork, err := b.d.Event()
	require.NoError(t, err)
	join, err := b.d.Event()
	require.NoError(t, err)
	double := find(t, b.d, "double")
	var l cuda.List
	add(&l, double, b.at, 0, 1)
	g, err := b.s.Capture(func() error {
		return errors.Join(b.s.Zero(b.at, 256), b.s.Record(fork), side.Wait(fork), side.Run(&l), side.Record(join), b.s.Wait(join), b.s.Run(&l))
	})
	require.NoError(t, err)
	require.NoError(t, side.Sync(), "the recording is over on all streams")
	require.NoError(t, b.s.Replay(g))
	require.EqualValues(t, 3, b.word(t))
	require.NoError(t, errors.Join(g.Close(), fork.Close(), join.Close(), side.Close()))
}

func TestAStreamWaitsForAnEventOfAnother(t *testing.T) {
	b := newBench(t)
	s, err := b.d.Stream()
	require.NoError(t, err)
	begin, err := b.d.Timer()
	require.NoError(t, err)
	end, err := b.d.Timer()
	require.NoError(t, err)
	_, err = end.Since(begin)
	require.Error(t, err, "neither has happened")
	letGo := held.close()
	defer letGo()
	var l cuda.List
	hold, double := find(t, b.d, "hold"), find(t, b.d, "double")
	require.NoError(t, errors.Join(b.s.Wait(begin), b.s.Zero(b.at, 256), b.s.Record(begin)), "an event that was never recorded is not waited for")
	require.NoError(t, b.s.Sync())
	add(&l, hold, 0, 0, 0)
	add(&l, double, b.at, 0, 5)
	require.NoError(t, errors.Join(b.s.Run(&l), b.s.Record(end), s.Wait(end), s.CopyOut(b.pinned, b.at)))
	_, err = end.Since(begin)
	require.ErrorContains(t, err, "CUDA error 600")
	letGo()
	require.NoError(t, s.Sync())
	require.EqualValues(t, 5, b.pinned[0])
	require.NoError(t, end.Sync())
	ms, err := end.Since(begin)
	require.NoError(t, err)
	require.Positive(t, ms)
	require.NoError(t, errors.Join(begin.Close(), end.Close(), s.Close()))
	require.ErrorIs(t, b.s.Record(end), device.ErrClosed)
	require.ErrorIs(t, b.s.Wait(nil), device.ErrElsewhere)
}

func TestFreeingWaitsForWorkThatUsesTheMemory(t *testing.T) {
	b := newBench(t)
	at, err := b.d.Alloc(256)
	require.NoError(t, err)
	letGo := held.close()
	var l cuda.List
	add(&l, find(t, b.d, "hold"), 0, 0, 0)
	add(&l, find(t, b.d, "add"), at, b.at, 1)
	require.NoError(t, errors.Join(b.s.Zero(at, 256), b.s.Run(&l)))
	freed := make(chan error)
	go func() { freed <- b.d.Free(at) }()
	letGo()
	require.NoError(t, <-freed)
	require.EqualValues(t, 1, b.word(t))
}

func TestRunningAListDoesNotAllocate(t *testing.T) {
	b := newBench(t)
	gpu.Set("null", 1)
	defer gpu.Set("null", 0)
	l := listOf(64, find(t, b.d, "double"), b.at)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = b.s.Run(l) }))
}

func listOf(n int, f cuda.Func, at uintptr) *cuda.List {
	l := &cuda.List{}
	for range n {
		add(l, f, at, at, 1)
	}
	return l
}

// BenchmarkRun is what a list costs here, with a driver that does nothing.
func BenchmarkRun(b *testing.B) {
	d, err := native.Open(0)
	require.NoError(b, err)
	s, err := d.Stream()
	require.NoError(b, err)
	m, err := d.Load([]byte(ptx))
	require.NoError(b, err)
	f, err := m.Func("double", 0)
	require.NoError(b, err)
	gpu.Set("null", 1)
	defer gpu.Set("null", 0)
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("launches=%d", n), func(b *testing.B) {
			l := listOf(n, f, 0)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Run(l); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/launch")
		})
	}
	require.NoError(b, errors.Join(s.Close(), m.Unload(), d.Close()))
}
