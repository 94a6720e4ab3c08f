//go:build cgo && linux && (amd64 || arm64)

package gpus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/fakenccl"
)

// heap is the memory of a GPU of the fake library's: this process's.
type heap struct {
	driver fakeDriver

	marked, waited atomic.Int64

	mu     sync.Mutex
	blocks map[uintptr][]byte
}

func (h *heap) Take(n int) (uintptr, error) {
	mem := make([]byte, n)
	at := uintptr(unsafe.Pointer(&mem[0]))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blocks[at] = mem
	return at, nil
}

func (h *heap) Give(at uintptr, _ int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.blocks, at)
}

func (h *heap) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.blocks) == 0
}

func (h *heap) find(at uintptr, n int) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	for base, mem := range h.blocks {
		if at >= base && at+uintptr(n) <= base+uintptr(len(mem)) {
			return mem[at-base:][:n]
		}
	}
	panic("nobody took it")
}

func (h *heap) Upload(at uintptr, src []byte) error { copy(h.find(at, len(src)), src); return nil }

func (h *heap) Download(dst []byte, at uintptr) error {
	if len(dst) > 0 {
		copy(dst, h.find(at, len(dst)))
	}
	return nil
}

func (h *heap) Move(dst, src uintptr, n int) error { copy(h.find(dst, n), h.find(src, n)); return nil }
func (h *heap) Mark(...uintptr) (func() error, error) {
	h.marked.Add(1)
	return func() error { h.waited.Add(1); return nil }, nil
}
func (h *heap) Driver() cuda.Driver  { return h.driver }
func (h *heap) Close() error         { return nil }
func (d fakeDriver) Info() cuda.Info { return d.fakeGPU.Info() }
func (d fakeDriver) Stream() (cuda.Stream, error) {
	if d.streams != nil {
		return nil, d.streams
	}
	d.open.Add(1)
	s := fakeStream{of: d.Of, over: d.over, open: d.open}
	if d.unlent {
		return s, nil
	}
	return lentStream{s}, nil
}
func (s fakeStream) Close() error    { s.open.Add(-1); return nil }
func (s lentStream) Handle() uintptr { return 77 }

// fakeDriver is of the fake library's GPU.
type fakeDriver struct {
	cuda.Driver
	fakeGPU
	streams error
	unlent  bool // its streams are for nobody else
	over    *atomic.Bool
	open    *atomic.Int64 // streams
}

type fakeStream struct {
	cuda.Stream
	of   *fakenccl.Fake
	over *atomic.Bool // of the test: what NCCL never did is not waited for
	open *atomic.Int64
}

type lentStream struct{ fakeStream }

// heapOf is the memory of a GPU of the fake library's.
func heapOf(f *fakenccl.Fake, number int, over *atomic.Bool) *heap {
	d := fakeDriver{fakeGPU: fakeGPU{fakenccl.GPU{Of: f, Number: number}}, over: over, open: new(atomic.Int64)}
	return &heap{driver: d, blocks: map[uintptr][]byte{}}
}

// Sync waits until all that was submitted is done, on any GPU.
func (s fakeStream) Sync() error {
	for s.of.Pending() > 0 && !s.over.Load() {
		runtime.Gosched()
	}
	return nil
}

// lent is a group whose members' GPUs are the fake library's, with buffers there.
func lent(t *testing.T, size int, mode gpus.Mode, change func(r int, d *fakeDriver)) *cards {
	t.Helper()
	p := &cards{job: start(t, size, 23007), attached: make([]*gpus.Attached, size)}
	over := new(atomic.Bool)
	for r := range size {
		h := heapOf(p.f, r, over)
		change(r, &h.driver)
		p.devs = append(p.devs, device.Over(device.CUDA(r), h, 0))
		var err error
		p.devices[r], err = gpus.On(p.devs[r])
		require.NoError(t, err)
	}
	p.gs = p.group(t, "world", p.ranks())
	every(t, p.ranks(), func(r int) (err error) {
		p.attached[r], err = gpus.Attach(t.Context(), p.gs[r], p.devices[r], gpus.Config{NCCL: mode, Library: p.l})
		return err
	})
	t.Cleanup(func() {
		p.f.Mend()
		over.Store(true)
		all(p.ranks(), func(r int) error { return p.attached[r].Close(context.Background()) })
		for _, d := range p.devs {
			require.NoError(t, d.Close())
			h := d.Memory().(*heap)
			require.Zero(t, h.driver.open.Load(), "streams are left open")
			require.Equal(t, h.marked.Load(), h.waited.Load(), "who had the memory before was not waited for")
			require.Eventually(t, h.empty, 10*time.Second, time.Millisecond, "memory was not given back") // an operation gives its buffers back behind its end
		}
	})
	return p
}

func asItIs(int, *fakeDriver) {}

func TestBuffersGoByNCCLWhereItGivesWhatTheHostGives(t *testing.T) {
	for size := 1; size <= 3; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := lent(t, size, gpus.Must, asItIs)
			require.Equal(t, []string{"NCCL"}, p.attached[0].Ways())
			require.ErrorContains(t, p.attached[0].Without(), "worker0: the GPU's memory cannot be shared")
			r := rand.New(rand.NewPCG(1, uint64(size)))
			for _, d := range dtypes {
				for _, op := range opsAll {
					if !legal(op, d) {
						continue
					}
					p.tell(t, r, op, d, 3, 0, 100)
					kinds := op == collective.Sum || op == collective.Mean || op == collective.Prod || !d.IsFloat() && (op == collective.Min || op == collective.Max)
					want := "host"
					if kinds && d != device.BFloat16 {
						want = "NCCL"
					}
					require.Equal(t, want, p.went(t), "%v of %v", op, d)
				}
			}
			require.Equal(t, uintptr(77), p.f.Records()[0].Stream)
			require.Zero(t, p.f.Pending())
		})
	}
}

// tell is reduce of small numbers, whose sums do not depend on their order.
func (p *cards) tell(t *testing.T, r *rand.Rand, op collective.Op, d device.Dtype, lens ...int) {
	t.Helper()
	in := make([][][]byte, len(lens))
	for i, n := range lens {
		for range p.gs {
			x := make([]float64, n)
			for k := range x {
				x[k] = float64(1 + r.IntN(4))
			}
			in[i] = append(in[i], bytesOf(d, x))
		}
	}
	p.compare(t, op, d, in)
}

func TestBuffersOfManyScopesGoByNCCLInOneOrder(t *testing.T) {
	p := lent(t, 3, gpus.Auto, asItIs)
	p.manyAtOnce(t, 700, 100)
	require.Equal(t, "NCCL", p.went(t))
	require.Zero(t, p.f.Pending())
}

// attempt has members reduce a buffer of 1, 2 and their rank, and looks what it is then.
func (p *cards) attempt(c func(r int) context.Context, ranks []int) (errs map[int]error, is map[int][]float32) {
	is = map[int][]float32{}
	var mu sync.Mutex
	errs = all(ranks, func(r int) error {
		in := make([][]byte, len(p.gs))
		in[r] = device.Bytes([]float32{1, 2, float32(r)})
		bufs, release, err := p.put(r, [][][]byte{in})
		defer release()
		if err != nil {
			return err
		}
		_, err = p.gs[r].AllReduceBuffers(c(r), collective.Sum, device.Float32, bufs...).Wait(context.Background())
		got := make([]byte, 12)
		if down := p.devs[r].Download(got, bufs[0], 0); down != nil {
			return down
		}
		mu.Lock()
		defer mu.Unlock()
		is[r] = device.As[float32](got)
		return err
	})
	return errs, is
}

func TestBuffersThatNCCLLeavesUndoneStayAsTheyWereAndTheNextGoByTheHost(t *testing.T) {
	for name, harm := range map[string]func(p *cards){
		"it refuses": func(p *cards) { p.f.Plant("ncclAllReduce", 1, 1) },
		"it hangs":   func(p *cards) { p.f.Hang("ncclAllReduce", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			p := lent(t, 3, gpus.Must, asItIs)
			harm(p)
			errs, is := p.attempt(func(int) context.Context {
				c, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				t.Cleanup(cancel)
				return c
			}, p.ranks())
			for r := range errs {
				require.Error(t, errs[r], "rank %d", r)
				require.Equal(t, []float32{1, 2, float32(r)}, is[r])
			}
			p.f.Mend()
			errs, is = p.attempt(func(int) context.Context { return t.Context() }, p.ranks())
			for r := range errs {
				require.NoError(t, errs[r], "rank %d", r)
				require.Equal(t, []float32{3, 6, 3}, is[r])
			}
			require.Equal(t, "host", p.went(t))
		})
	}
}

func TestMemoryThatNCCLMayStillWriteIsNobodyElses(t *testing.T) {
	p := lent(t, 2, gpus.Must, asItIs)
	p.f.Hang("ncclAllReduce", 1)
	p.f.Hang("ncclCommAbort", -1) // which would have the launch return
	errs, _ := p.attempt(func(int) context.Context {
		c, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return c
	}, p.ranks())
	for r := range errs {
		require.Error(t, errs[r])
		b, err := p.devs[r].Borrow(12)
		require.NoError(t, err)
		h := p.devs[r].Memory().(*heap)
		h.mu.Lock()
		require.Len(t, h.blocks, 3, "beside the buffer and what NCCL writes")
		h.mu.Unlock()
		b.Return()
	}
}

func TestAMemberLostInNCCLIsNamedOnTheOthers(t *testing.T) {
	p := lent(t, 3, gpus.Must, asItIs)
	c, end := context.WithCancel(t.Context())
	p.f.Hang("ncclAllReduce", 2)
	go func() {
		for p.f.Calls("ncclAllReduce") < 3 {
			runtime.Gosched()
		}
		_ = p.workers[2].Close()
		<-p.gs[0].Done()
		<-p.gs[1].Done()
		end() // of what waits on the member that is lost
	}()
	errs, is := p.attempt(func(r int) context.Context { return []context.Context{t.Context(), t.Context(), c}[r] }, p.ranks())
	for r := range 2 {
		var e *collective.LostError
		require.ErrorAs(t, errs[r], &e)
		require.Equal(t, "worker2", e.Worker)
		require.Equal(t, []float32{1, 2, float32(r)}, is[r])
	}
}

func TestWithoutNCCLBuffersGoByTheHost(t *testing.T) {
	p := lent(t, 2, gpus.Off, asItIs)
	require.Empty(t, p.attached[1].Ways())
	require.ErrorIs(t, p.attached[1].Without(), gpus.ErrWithout)
	p.tell(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
	require.Equal(t, "host", p.went(t))
}

func TestAMemberWhoseDriverHasNoStreamHasAllGoByTheHost(t *testing.T) {
	none := errors.New("no streams are left")
	p := lent(t, 2, gpus.Auto, func(r int, d *fakeDriver) {
		if r == 1 {
			d.streams = none
		}
	})
	require.ErrorIs(t, p.attached[1].Without(), none)
	require.ErrorContains(t, p.attached[0].Without(), "worker1: no streams are left")
	p.tell(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
	require.Equal(t, "host", p.went(t))
}

func TestAMemberWhoseDriverLendsNoStreamHasAllGoByTheHost(t *testing.T) {
	p := lent(t, 2, gpus.Auto, func(r int, d *fakeDriver) { d.unlent = r == 1 })
	require.ErrorContains(t, p.attached[0].Without(), "worker1: the GPU's driver lends it to no other library")
	p.tell(t, rand.New(rand.NewPCG(1, 1)), collective.Sum, device.Float32, 5)
	require.Equal(t, "host", p.went(t))
}

func TestADeviceOfUseIsAttachedAndAllGoesByTheHost(t *testing.T) {
	j := start(t, 2, 23007)
	gs := j.group(t, "world", j.ranks())
	every(t, j.ranks(), func(r int) error {
		a, err := gpus.Attach(t.Context(), gs[r], j.devices[r], gpus.Config{Library: j.l})
		if err == nil && (len(a.Ways()) > 0 || !strings.Contains(a.Without().Error(), "one of Use, and not of On")) {
			err = fmt.Errorf("it goes by %v, without %w", a.Ways(), a.Without())
		}
		if err != nil {
			return err
		}
		x, err := device.Host().Alloc(4)
		if err == nil {
			_, err = gs[r].AllReduceBuffers(t.Context(), collective.Sum, device.Float32, x).Wait(t.Context())
		}
		return errors.Join(err, a.Close(t.Context()), x.Release())
	})
}

func TestWhereNCCLMustBeAllHearWhyItIsNot(t *testing.T) {
	j := start(t, 2, 23007)
	gs := j.group(t, "world", j.ranks())
	t.Setenv("WEFT_NCCL", "/nonexistent/libnccl.so.2")
	for r, err := range all(j.ranks(), func(r int) error {
		h := heapOf(j.f, r, new(atomic.Bool))
		d, err := gpus.On(device.Over(device.CUDA(r), h, 0))
		if err == nil {
			_, err = gpus.Attach(t.Context(), gs[r], d, gpus.Config{NCCL: gpus.Must})
		}
		if n := h.driver.open.Load(); n > 0 {
			err = fmt.Errorf("%d streams are left open", n)
		}
		return err
	}) {
		require.ErrorIs(t, err, cuda.ErrNoLibrary, "rank %d", r)
		require.ErrorContains(t, err, `gpus: attach to group "world"`)
	}
	every(t, j.ranks(), func(r int) error { return gs[r].Barrier(t.Context()) })
	_, err := gpus.On(device.Over(device.CUDA(0), nothing{}, 0))
	require.ErrorIs(t, err, collective.ErrArguments)
	require.ErrorContains(t, err, "cuda:0 is no GPU with a driver")
}

func TestWhatFailsOnAMemberAloneIsToldToAll(t *testing.T) {
	j := start(t, 3, 23007)
	gs := j.group(t, "world", j.ranks())
	alone := errors.New("it has failed here alone")
	for r, err := range all(j.ranks(), func(r int) error {
		return gpus.OpenWindow(t.Context(), gs[r], j.devices[r], map[int]error{1: alone}[r])
	}) {
		require.ErrorContains(t, err, alone.Error(), "rank %d", r)
		var e *gpus.FailedError
		if r != 1 {
			require.ErrorAs(t, err, &e)
			require.Equal(t, "worker1", e.Worker)
		}
	}
	every(t, j.ranks(), func(r int) error { return gs[r].Barrier(t.Context()) })
}

type nothing struct{ device.Memory }

var _ nccl.Binder = fakeGPU{}
