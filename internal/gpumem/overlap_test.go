package gpumem_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/soak"
)

// bench is a GPU whose streams can be held, and work for it.
type bench struct {
	*testing.T
	judge assert.TestingT // of values
	m     *ptx.Machine
	g     *gpumem.GPU
	d     *device.Accelerator
}

func newBench(t *testing.T, seed uint64, streams int) *bench {
	return over(t, seed, streams, func(m *ptx.Machine) cuda.Driver { return m })
}

func over(t *testing.T, seed uint64, streams int, through func(*ptx.Machine) cuda.Driver) *bench {
	m := ptx.New(ptx.Config{Late: rand.New(rand.NewPCG(seed, 21))})
	g, err := gpumem.Config{Streams: streams}.NewGPU(through(m))
	require.NoError(t, err)
	return &bench{t, t, m, g, device.Over(device.CUDA(0), g, 0)}
}

const size = 64

func (b *bench) alloc(v byte) *device.Buffer {
	x, err := b.d.Alloc(size)
	require.NoError(b, err)
	mem := make([]byte, size)
	mem[0] = v
	require.NoError(b, b.d.Upload(x, 0, mem))
	return x
}

func (b *bench) get(x *device.Buffer) byte {
	mem := make([]byte, size)
	assert.NoError(b, b.d.Download(mem, x, 0))
	return mem[0]
}

func (b *bench) done(all ...*device.Buffer) {
	for _, x := range all {
		require.NoError(b, x.Release())
	}
	require.NoError(b, b.d.Close())
}

// soon fails where something does not come to its end.
func (b *bench) soon(what string, do func()) {
	end := make(chan struct{})
	go func() { defer close(end); do() }()
	select {
	case <-end:
	case <-time.After(20 * time.Second):
		require.Fail(b, what+" waits for what it has nothing to do with")
	}
}

type work func(cuda.Stream) error

func (w work) Submit(s cuda.Stream, _ uint64) error { return w(s) }
func (work) Flag() uint8                            { return 0 }

// take copies one buffer to another, as a kernel would.
func (b *bench) take(to, from *device.Buffer, more ...func(*gpumem.Use)) error {
	u := &gpumem.Use{Access: []gpumem.Access{gpumem.Write, gpumem.Read}}
	for _, m := range more {
		m(u)
	}
	return b.g.Run(work(func(s cuda.Stream) error { return s.Copy(to.Addr(), from.Addr(), size) }), u, []*device.Buffer{to, from}, nil)
}

func light(u *gpumem.Use) { u.Light = true }

func TestAProgramFinishesWhileAnotherIsHeldBack(t *testing.T) {
	leak.Check(t)
	for _, weight := range [][]func(*gpumem.Use){nil, {light}} {
		for seed := range uint64(6) {
			b := newBench(t, seed, 0)
			x, y, v, w := b.alloc(1), b.alloc(2), b.alloc(3), b.alloc(4)
			require.NoError(t, b.g.Sync())
			require.NoError(t, b.take(y, x, weight...))
			release := b.m.Hold(0)
			var waiting sync.WaitGroup
			waiting.Go(func() { assert.EqualValues(t, 1, b.get(y)) })
			waiting.Go(func() { assert.EqualValues(t, 1, b.get(y)) })
			b.soon("another program", func() {
				for k := range byte(10) {
					assert.NoError(t, b.d.Upload(v, 0, []byte{k}))
					assert.NoError(t, b.take(w, v, weight...))
					assert.Equal(t, k, b.get(w))
					assert.NoError(t, b.d.CopyWithin(v, w))
					assert.NoError(t, b.d.Check(v, w))
					assert.Equal(t, k, b.get(v))
				}
				fresh := b.alloc(9)
				assert.EqualValues(t, 9, b.get(fresh))
				assert.NoError(t, fresh.Release())
			})
			release()
			waiting.Wait()
			b.done(x, y, v, w)
		}
	}
}

func TestWithOneStreamOnlyAnotherProgramWaits(t *testing.T) {
	b := newBench(t, 1, 1)
	x, y, v, w := b.alloc(1), b.alloc(2), b.alloc(3), b.alloc(4)
	require.NoError(t, b.g.Sync())
	require.NoError(t, b.take(y, x))
	release := b.m.Hold(0)
	require.NoError(t, b.take(w, v))
	end := make(chan byte)
	go func() { end <- b.get(w) }()
	select {
	case <-end:
		require.Fail(t, "so the tests of what overlaps would find nothing")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	require.EqualValues(t, 3, <-end)
	b.done(x, y, v, w)
}

func TestADownloadDoesNotWaitForWhatComesLater(t *testing.T) {
	for seed := range uint64(6) {
		b := newBench(t, seed, 0)
		x, y, z := b.alloc(1), b.alloc(2), b.alloc(3)
		for range 2 { // the first time, nobody knows that somebody will ask
			require.NoError(t, b.g.Sync())
			require.NoError(t, b.take(y, x))
			require.NoError(t, b.take(z, y))
			require.EqualValues(t, 1, b.get(y))
		}
		require.NoError(t, b.d.Upload(x, 0, []byte{7}))
		require.NoError(t, b.g.Sync())
		require.NoError(t, b.take(y, x))
		require.NoError(t, b.take(z, y))
		release := b.m.Hold(2) // the first run, and an event
		b.soon("a download", func() { assert.EqualValues(t, 7, b.get(y)) })
		release()
		require.EqualValues(t, 7, b.get(z))
		b.done(x, y, z)
	}
}

func TestTheFirstUseOfMemoryThatAnotherProgramStillUsesWaitsForThat(t *testing.T) {
	for seed := range uint64(20) {
		b := newBench(t, seed, 0)
		x, y := b.alloc(1), b.alloc(2)
		require.NoError(t, b.g.Sync())
		old, err := b.d.Alloc(size)
		require.NoError(t, err)
		require.NoError(t, b.take(old, x))
		require.NoError(t, b.take(y, old))
		at := old.Addr()
		require.NoError(t, old.Release())
		fresh := b.alloc(8)
		require.Equal(t, at, fresh.Addr(), "the same memory")
		require.EqualValues(t, 8, b.get(fresh))
		require.EqualValues(t, 1, b.get(y), "seed %d", seed)
		b.done(x, y, fresh)
	}
}

func TestAnUploadToNewMemoryDoesNotWaitForAnotherProgram(t *testing.T) {
	b := newBench(t, 2, 0)
	x, y, old := b.alloc(1), b.alloc(2), b.alloc(3)
	require.NoError(t, b.g.Sync())
	require.NoError(t, b.take(old, x))
	require.NoError(t, b.take(y, old))
	require.NoError(t, old.Release())
	release := b.m.Hold(0)
	fresh, err := b.d.AllocFor(size, device.ForUpload{})
	require.NoError(t, err)
	b.soon("an upload", func() {
		assert.NoError(t, b.d.Upload(fresh, 0, []byte{8}))
		assert.EqualValues(t, 8, b.get(fresh))
	})
	release()
	b.done(x, y, fresh)
}

func TestScratchIsNotWhatAnotherStreamStillUses(t *testing.T) {
	b := newBench(t, 3, 0)
	x, y := b.alloc(1), b.alloc(2)
	require.NoError(t, b.g.Sync())
	u := &gpumem.Use{Access: []gpumem.Access{gpumem.Read | gpumem.Write}}
	run := func(x *device.Buffer) uintptr {
		bufs := []*device.Buffer{x}
		s, err := b.d.BorrowFor(size, b.g.Where(u, bufs))
		require.NoError(t, err)
		defer s.Return()
		require.NoError(t, b.g.Run(work(func(to cuda.Stream) error {
			return errors.Join(to.Copy(s.Addr(), x.Addr(), size), to.Copy(x.Addr(), s.Addr(), size))
		}), u, bufs, &s))
		return s.Addr()
	}
	mine, yours := run(x), run(y)
	require.NotEqual(t, mine, yours)
	for range 10 {
		require.Equal(t, mine, run(x))
		require.Equal(t, yours, run(y))
	}
	require.NoError(t, b.g.Sync())
	require.Equal(t, run(y), run(y))
	b.done(x, y)
}

func TestAStreamFindsItsMemoryHoweverMuchOthersStillUse(t *testing.T) {
	b := newBench(t, 4, 0)
	x, y := b.alloc(1), b.alloc(2)
	require.NoError(t, b.g.Sync())
	var kept []*device.Buffer
	for range 20 {
		z, err := b.d.Alloc(size)
		require.NoError(t, err)
		require.NoError(t, b.take(z, x))
		require.NoError(t, b.take(x, z))
		kept = append(kept, z)
	}
	for _, z := range kept {
		require.NoError(t, z.Release())
	}
	var at uintptr
	u := &gpumem.Use{Access: []gpumem.Access{gpumem.Read, gpumem.Write}}
	for k := range 10 {
		z, err := b.d.AllocFor(size, b.g.Where(u, []*device.Buffer{y, nil}))
		require.NoError(t, err)
		if k > 0 {
			require.Equal(t, at, z.Addr(), "and takes no more")
		}
		at = z.Addr()
		require.NoError(t, b.take(z, y))
		require.NoError(t, b.take(y, z))
		require.NoError(t, z.Release())
	}
	for _, z := range kept {
		require.NotEqual(t, at, z.Addr())
	}
	b.done(x, y)
}

func TestAStepThatGoesByWhatCameOfAFaultDoesNothing(t *testing.T) {
	for seed := range uint64(20) {
		b := newBench(t, seed, 0)
		bad, x, grad, params := b.alloc(0), b.alloc(1), b.alloc(2), b.alloc(3)
		require.NoError(t, b.g.Sync())
		faulty := &gpumem.Use{Access: []gpumem.Access{gpumem.Write}, Faults: true}
		require.NoError(t, b.g.Run(work(func(s cuda.Stream) error { return s.Copy(b.g.FaultAddr(), x.Addr(), 8) }), faulty, []*device.Buffer{bad}, nil))
		require.NoError(t, b.take(grad, bad))
		var fault *gpumem.FaultError
		require.NoError(t, b.d.Check(x), "it is of something else; it may find the fault, and clear the record")
		require.NoError(t, b.g.Sync())
		require.NoError(t, b.d.Check(x))
		step := func(u *gpumem.Use) { u.Access[0] |= gpumem.Stepped; u.Old, u.Steps = []int{0}, true }
		require.ErrorAs(t, b.take(params, grad, step), &fault, "seed %d", seed)
		require.EqualValues(t, 3, b.get(params))
		require.NoError(t, b.take(grad, x))
		require.NoError(t, b.take(params, grad, step), "the next may be right")
		require.EqualValues(t, 1, b.get(params))
		b.done(bad, x, grad, params)
	}
}

// Programs on several goroutines over shared buffers: each reads what all may read, and writes what
// is its own.
func (b *bench) programs(seed uint64) {
	var shared [4]*device.Buffer
	for k := range shared {
		shared[k] = b.alloc(byte(100 + k))
	}
	var programs sync.WaitGroup
	for p := range uint64(3) {
		programs.Go(func() { b.program(rand.New(rand.NewPCG(seed, p)), shared[:]) })
	}
	programs.Wait()
	b.done(shared[:]...)
}

func TestRandomProgramsSideBySideGiveWhatTheyGiveAlone(t *testing.T) {
	for seed := range uint64(soak.Cases(30)) {
		newBench(t, seed, 1+int(seed%5)).programs(seed)
	}
}

// deaf is a driver whose streams wait for nothing.
type deaf struct{ cuda.Driver }

func (d deaf) Stream() (cuda.Stream, error) {
	s, err := d.Driver.Stream()
	return deafStream{s}, err
}

type deafStream struct{ cuda.Stream }

func (deafStream) Wait(cuda.Event) error { return nil }

// tally counts what is wrong.
type tally struct{ wrong atomic.Int64 }

func (t *tally) Errorf(string, ...any) { t.wrong.Add(1) }

func TestRandomProgramsFindThatNobodyWaits(t *testing.T) {
	var wrong tally
	for seed := range uint64(10) {
		b := over(t, seed, 4, func(m *ptx.Machine) cuda.Driver { return deaf{m} })
		require.NoError(t, b.d.Check(), "by then the fault record is cleared, which nobody waits for either")
		b.judge = &wrong
		b.programs(seed)
	}
	require.Positive(t, wrong.wrong.Load())
}

func (b *bench) program(r *rand.Rand, shared []*device.Buffer) {
	var own [6]*device.Buffer
	var want [6]byte
	for k := range own {
		own[k] = b.alloc(byte(k))
		want[k] = byte(k)
	}
	for range 60 {
		to, from := r.IntN(len(own)), r.IntN(len(own))
		switch r.IntN(8) {
		case 0:
			want[to] = byte(r.IntN(256))
			assert.NoError(b, b.d.Upload(own[to], 0, []byte{want[to]}))
		case 1:
			assert.Equal(b.judge, want[to], b.get(own[to]))
		case 2: // the memory goes to whoever wants it, while it is still used
			assert.NoError(b, own[to].Release())
			want[to] = byte(r.IntN(256))
			own[to] = b.alloc(want[to])
		case 3:
			k := r.IntN(len(shared))
			want[to] = byte(100 + k)
			assert.NoError(b, b.take(own[to], shared[k]))
		case 4:
			assert.NoError(b, b.d.CopyWithin(own[to], own[from]))
			want[to] = want[from]
		default:
			if to == from {
				continue
			}
			assert.NoError(b, b.take(own[to], own[from], func(u *gpumem.Use) { u.Light = r.IntN(2) == 0 }))
			want[to] = want[from]
		}
	}
	for k, x := range own {
		assert.Equal(b.judge, want[k], b.get(x))
		assert.NoError(b, x.Release())
	}
}
