package cpu

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// chain is a routine of n additions of 1 in place, and its buffers.
func chain(t testing.TB, n int) (*routine, []*device.Buffer) {
	at := []kernels.Place{{Len: 16}}
	calls := make([]kernels.Call, n)
	for k := range calls {
		calls[k] = kernels.Call{Instr: kernels.Unary{Fn: kernels.Shift, C: 1}, In: []kernels.Type{cpuf32(4)}, Outs: at, Ins: at}
	}
	r, err := Backend{}.Assemble(calls, []int{16}, []bool{true})
	require.NoError(t, err)
	b, err := device.Host().Alloc(16)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Release()) })
	return r.(*routine), []*device.Buffer{b}
}

func TestAPanicInARoutineIsTheErrorOfItsCallAndTheRoutineGoesOnWorking(t *testing.T) {
	for _, mistake := range []any{"a mistake", errors.New("a mistake")} {
		r, bufs := chain(t, 3)
		good := r.calls[1].run
		r.calls[1].run = func(outs, ins [][]byte) error { panic(mistake) }
		err := r.Run(bufs)
		var call *kernels.CallError
		require.ErrorAs(t, err, &call)
		require.Equal(t, 1, call.At)
		require.EqualError(t, err, "instruction 1: Shift(1): panic: a mistake")
		r.calls[1].run = good
		require.NoError(t, r.Run(bufs))
	}
}

func TestAPanicInAKernelIsItsError(t *testing.T) {
	k, err := Backend{}.Prepare(kernels.Unary{Fn: kernels.Exp}, []kernels.Type{cpuf32(4)})
	require.NoError(t, err)
	k.(*kernel).run = func(outs, ins [][]byte) error { panic("a mistake") }
	_, bufs := chain(t, 1)
	require.EqualError(t, k.Run(bufs, bufs), "Exp: panic: a mistake")
}

func TestARoutineSeesNoByteBeyondItsPlaces(t *testing.T) {
	r, bufs := chain(t, 2)
	r.calls[1].run = func(outs, ins [][]byte) error {
		assert.Equal(t, 16, cap(outs[0]))
		assert.Equal(t, 1, cap(outs))
		assert.Equal(t, 1, cap(ins))
		return nil
	}
	require.NoError(t, r.Run(bufs))
}

func TestARoutineRefusesToWriteWhatIsReadOnly(t *testing.T) {
	r, _ := chain(t, 1)
	foreign := device.Foreign(make([]byte, 16), nil, func() {})
	require.ErrorIs(t, r.Run([]*device.Buffer{foreign}), device.ErrReadOnly)
	require.NoError(t, foreign.Release())
}

func TestOneRoutineRunsConcurrentlyOnDifferentBuffers(t *testing.T) {
	r, _ := chain(t, 20)
	var wg sync.WaitGroup
	for n := range 4 {
		b, err := device.Host().Alloc(16)
		require.NoError(t, err)
		raw, err := b.Host()
		require.NoError(t, err)
		copy(device.As[float32](raw), []float32{float32(n), 0, 0, 0})
		wg.Go(func() {
			for range 50 {
				assert.NoError(t, r.Run([]*device.Buffer{b}))
			}
			assert.Equal(t, []float32{float32(n + 1000), 1000, 1000, 1000}, device.As[float32](raw))
			assert.NoError(t, b.Release())
		})
	}
	wg.Wait()
}

// BenchmarkRoutine is the cost of a call of almost no work: a body of four additions.
func BenchmarkRoutine(b *testing.B) {
	r, bufs := chain(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Run(bufs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/call")
}
