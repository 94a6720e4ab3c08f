package gpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// counted is a driver that counts what its streams are asked for.
type counted struct {
	cuda.Driver
	runs, replays, captures, waits atomic.Int64
}

func (d *counted) Stream() (cuda.Stream, error) {
	s, err := d.Driver.Stream()
	return &countedStream{s, d}, err
}

type countedStream struct {
	cuda.Stream
	of *counted
}

func (s *countedStream) Run(l *cuda.List) error { s.of.runs.Add(1); return s.Stream.Run(l) }

func (s *countedStream) Replay(g cuda.Graph) error { s.of.replays.Add(1); return s.Stream.Replay(g) }

func (s *countedStream) Sync() error { s.of.waits.Add(1); return s.Stream.Sync() }

func (s *countedStream) Capture(fn func() error) (cuda.Graph, error) {
	s.of.captures.Add(1)
	return s.Stream.Capture(fn)
}

// on makes a device of a driver.
func on(t testing.TB, d cuda.Driver) *device.Accelerator {
	acc, err := On(d, device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, acc.Close()) })
	return acc
}

// chain adds 1 to each of 4 numbers n times, in place, by way of some scratch.
func chain(t testing.TB, d device.Device, n int) kernels.Routine {
	f := kernels.Type{Dtype: device.Float32, Shape: device.Shape{2, 2}}
	one := kernels.Type{Dtype: device.Float32, Shape: device.Shape{2, 2}}
	at, unit := []kernels.Place{{Len: 16}}, kernels.Place{Buf: 0, Off: 16, Len: 16}
	calls := make([]kernels.Call, n)
	for k := range calls {
		calls[k] = kernels.Call{Instr: kernels.Unary{Fn: kernels.Shift, C: 1}, In: []kernels.Type{f}, Outs: at, Ins: at}
	}
	calls = append(calls, kernels.Call{ // times the unit matrix, which takes scratch
		Instr: kernels.MatMulThen{MatMul: kernels.MatMul{}, Then: kernels.Map{Shape: f.Shape, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Maximum}, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}},
		In:    []kernels.Type{f, one, f}, Outs: []kernels.Place{{Off: 32, Len: 16}}, Ins: []kernels.Place{at[0], unit, at[0]},
	})
	b, err := backends.For(d)
	require.NoError(t, err)
	r, err := b.Assemble(calls, []int{48}, []bool{true})
	require.NoError(t, err)
	return r
}

// operand is the buffer of a chain, with four numbers and the unit matrix.
func operand(t testing.TB, d device.Device, v ...float32) *device.Buffer {
	b, err := d.Alloc(48)
	require.NoError(t, err)
	require.NoError(t, d.Upload(b, 0, device.Bytes(append(v, 1, 0, 0, 1))))
	return b
}

func result(t testing.TB, d device.Device, b *device.Buffer) []float32 {
	v := make([]float32, 4)
	require.NoError(t, d.Download(device.Bytes(v), b, 32))
	return v
}

func TestOneRoutineRunsConcurrentlyOnDifferentBuffers(t *testing.T) {
	d := on(t, ptxtest.New(ptx.Config{}))
	r := chain(t, d, 4)
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			b := operand(t, d, float32(n), 0, 0, 0)
			for range 10 {
				assert.NoError(t, r.Run([]*device.Buffer{b}))
			}
			assert.Equal(t, []float32{float32(n) + 40, 40, 40, 40}, result(t, d, b))
			assert.NoError(t, b.Release())
		})
	}
	wg.Wait()
}

func TestKernelsThatNothingHoldsAreUnloaded(t *testing.T) {
	d := on(t, ptxtest.New(ptx.Config{}))
	b, err := backends.For(d)
	require.NoError(t, err)
	m := &b.(*backend).made
	for n := range recentModules + deadModules + 2 {
		_, err := b.Prepare(kernels.Unary{Fn: kernels.Scale, C: float64(n)}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{1}}})
		require.NoError(t, err)
	}
	collect := func(enough func() bool) {
		for range 100 {
			m.mu.Lock()
			done := enough()
			m.mu.Unlock()
			if done {
				return
			}
			runtime.GC()
			runtime.Gosched()
		}
		require.Fail(t, "the collector found nothing")
	}
	collect(func() bool { return len(m.dead) > deadModules })
	_, err = b.Prepare(kernels.Unary{Fn: kernels.Scale, C: -1}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{1}}})
	require.NoError(t, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	require.LessOrEqual(t, len(m.loaded), recentModules+1)
	require.Len(t, m.byBody, len(m.loaded))
}

// idle is a driver that does nothing, and so shows what the host does.
type idle struct{ taken atomic.Uintptr }

func (*idle) Info() cuda.Info { return cuda.Info{Arch: 90} }
func (d *idle) Alloc(n int) (uintptr, error) {
	return 1<<40 + d.taken.Add(uintptr(n+255)&^255), nil
}
func (*idle) Free(uintptr) error                      { return nil }
func (*idle) Room() (int, error)                      { return 1 << 40, nil }
func (*idle) Pin(n int) ([]byte, error)               { return make([]byte, n), nil }
func (*idle) Unpin([]byte) error                      { return nil }
func (*idle) Load([]byte) (cuda.Module, error)        { return &idleModule{}, nil }
func (*idle) Stream() (cuda.Stream, error)            { return &idleStream{}, nil }
func (*idle) Event() (cuda.Event, error)              { return idleEvent{}, nil }
func (*idle) Timer() (cuda.Timer, error)              { return nil, nil }
func (*idle) Export(uintptr) (h cuda.Handle, e error) { return h, nil }
func (*idle) Import(cuda.Handle) (uintptr, error)     { return 0, nil }
func (*idle) Unimport(uintptr) error                  { return nil }
func (*idle) Close() error                            { return nil }

type idleModule struct{ _ int }

func (*idleModule) Func(name string, _ int) (cuda.Func, error) { return idleFunc(name), nil }
func (*idleModule) Unload() error                              { return nil }

type idleFunc string

func (f idleFunc) Name() string { return string(f) }

type idleStream struct{ launches, graphs int }

func (*idleStream) CopyIn(uintptr, []byte) error     { return nil }
func (*idleStream) CopyOut([]byte, uintptr) error    { return nil }
func (*idleStream) Copy(uintptr, uintptr, int) error { return nil }
func (*idleStream) Zero(uintptr, int) error          { return nil }
func (s *idleStream) Run(l *cuda.List) error         { s.launches += len(l.Launches); return nil }
func (*idleStream) Record(cuda.Event) error          { return nil }
func (*idleStream) Wait(cuda.Event) error            { return nil }
func (*idleStream) Sync() error                      { return nil }
func (*idleStream) Close() error                     { return nil }
func (s *idleStream) Replay(cuda.Graph) error        { s.graphs++; return nil }
func (*idleStream) Capture(fn func() error) (cuda.Graph, error) {
	return idleEvent{}, fn()
}

type idleEvent struct{}

func (idleEvent) Sync() error  { return nil }
func (idleEvent) Close() error { return nil }

// BenchmarkRoutine is the host's time for each of a routine's instructions, without the driver's.
func BenchmarkRoutine(b *testing.B) {
	for name, same := range map[string]bool{"graph": true, "launches": false} {
		b.Run(name, func(b *testing.B) {
			d := on(b, &idle{})
			r := chain(b, d, 99)
			var bufs [2 * graphsKept]*device.Buffer
			for k := range bufs {
				bufs[k] = operand(b, d, 0, 0, 0, 0)
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if !same {
					n++
				}
				if err := r.Run(bufs[n%len(bufs):][:1]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/instr")
		})
	}
}

// BenchmarkPrepareUpdate is what an optimizer's step costs beside its run: it is a new instruction
// each time.
func BenchmarkPrepareUpdate(b *testing.B) {
	d := on(b, &idle{})
	back, err := backends.For(d)
	require.NoError(b, err)
	var in []kernels.Type
	for range 16 * 4 {
		in = append(in, kernels.Type{Dtype: device.Float32, Shape: device.Shape{512, 512}})
	}
	step := 0
	b.ReportAllocs()
	for b.Loop() {
		step++
		_, err := back.Prepare(kernels.UpdateMany{Of: kernels.Update{Rule: kernels.AdamW, LR: 1e-3 / float64(step), Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: step}}, in)
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLookUp is the host's time for a run that can meet a bad index, whose line is remembered.
func BenchmarkLookUp(b *testing.B) {
	d := on(b, &idle{})
	back, err := backends.For(d)
	require.NoError(b, err)
	k, err := back.Prepare(kernels.Gather{}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{12}}, {Dtype: device.Int32, Shape: device.Shape{12}}})
	require.NoError(b, err)
	out, ids := []*device.Buffer{operand(b, d, 0, 0, 0, 0)}, operand(b, d, 0, 0, 0, 0)
	in := []*device.Buffer{ids, ids}
	b.ReportAllocs()
	for b.Loop() {
		if err := k.Run(out, in); err != nil {
			b.Fatal(err)
		}
	}
}
