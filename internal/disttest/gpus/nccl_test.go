package gpus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/gpus"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/testgpu"
)

// alone is a group of this worker alone, on its GPU.
func (r *resident) alone(t *testing.T) (*collective.Group, *gpus.Device) {
	t.Helper()
	g, err := collective.Open(t.Context(), r.Worker, "alone", "worker0")
	require.NoError(t, err)
	t.Cleanup(func() { g.Close() })
	d, err := gpus.On(r.devices[0])
	require.NoError(t, err)
	return g, d
}

func TestAGroupOfOneReducesByNCCLWhereItsGPUIsReal(t *testing.T) {
	r := together(t, nil, false)
	g, d := r.alone(t)
	a, err := gpus.Attach(t.Context(), g, d, gpus.Config{NCCL: gpus.Must})
	if !testgpu.Real() {
		require.ErrorContains(t, err, "lends it to no other library")
		return
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close(t.Context())) }()
	require.Equal(t, "NCCL", a.Ways()[0])
	for _, n := range []int{0, 1, 100_003} {
		x := make([]float32, n)
		for k := range x {
			x[k] = number(0, n, k)
		}
		b, err := r.devices[0].Alloc(4 * n)
		require.NoError(t, err)
		require.NoError(t, r.devices[0].Upload(b, 0, device.Bytes(x)))
		for _, op := range []collective.Op{collective.Sum, collective.Mean, collective.Prod} {
			_, err = g.AllReduceBuffers(t.Context(), op, device.Float32, b).Wait(t.Context())
			require.NoError(t, err)
		}
		got := make([]float32, n)
		require.NoError(t, r.devices[0].Download(device.Bytes(got), b, 0))
		require.Equal(t, x, got)
		require.NoError(t, b.Release())
	}
	way := ""
	for _, e := range g.Trace() {
		if e.Way != "" {
			way += e.Way + " "
		}
	}
	require.Equal(t, strings.Repeat("host ", 3)+strings.Repeat("NCCL ", 6), way, "no bytes are nobody's")
}

// Both workers are on one GPU, which NCCL refuses, or would wait for ever.
func TestTwoWorkersOnOneGPUAreRefusedBeforeNCCLIsAsked(t *testing.T) {
	r := together(t, nil, false)
	others := make(chan error, 1)
	go func() { others <- r.other.Ask(t.Context(), "must", struct{}{}, nil) }()
	_, err := r.must(t.Context(), struct{}{})
	told := <-others
	if !testgpu.Real() {
		require.ErrorContains(t, err, "lends it to no other library")
		require.ErrorContains(t, told, "lends it to no other library")
		return
	}
	var e *gpus.SharedGPUError
	require.ErrorAs(t, err, &e)
	require.Equal(t, [2]int{0, 1}, e.Ranks)
	require.ErrorContains(t, told, gpus.ErrSharedGPU.Error())
}

// must attaches a group of both workers, which is to have NCCL.
func (r *resident) must(c context.Context, _ struct{}) (none struct{}, err error) {
	g, err := collective.Open(c, r.Worker, "both")
	if err != nil {
		return none, err
	}
	defer g.Close()
	d, err := gpus.On(r.devices[0])
	if err != nil {
		return none, err
	}
	a, err := gpus.Attach(c, g, d, gpus.Config{NCCL: gpus.Must})
	if err == nil {
		err = errors.Join(errors.New("it attached"), a.Close(c))
	}
	return none, err
}

// card is a GPU for NCCL, without anything above it.
type card struct {
	l      *nccl.Library
	driver cuda.Driver
	stream cuda.Stream
}

// onCard gives a test NCCL, a GPU and a stream of it; nothing where the GPU is the interpreter's,
// which lends itself to no library.
func onCard(t *testing.T) *card {
	t.Helper()
	k := &card{driver: testgpu.Open(t, ptx.Config{})}
	t.Cleanup(func() { require.NoError(t, k.driver.Close()) })
	_, lent := k.driver.(cuda.Lender)
	require.Equal(t, testgpu.Real(), lent)
	if !lent {
		return nil
	}
	var err error
	k.l, err = nccl.Open()
	require.NoError(t, err)
	t.Logf("NCCL %s of %s", nccl.Version(k.l.Version()), k.l.Path())
	k.stream, err = k.driver.Stream()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.stream.Close()) })
	return k
}

// join makes a communicator of so many, of which this is the first.
func (k *card) join(c context.Context, size int) (*nccl.Comm, error) {
	id, err := k.l.NewID()
	if err != nil {
		return nil, err
	}
	return k.l.Init(c, k.driver.(cuda.Lender), size, id, 0, nccl.Config{Name: "weft", MaxCTAs: 4})
}

func (k *card) run(m *nccl.Comm, calls ...nccl.Call) error {
	return k.driver.(cuda.Lender).Within(func() error { return m.Run(k.stream.(cuda.Handled).Handle(), calls...) })
}

// memory is two arrays on the GPU, of which the first has these values and the second is cleared.
func (k *card) memory(t *testing.T, values []float32) (from, to uintptr) {
	t.Helper()
	n := 4 * len(values)
	at, err := k.driver.Alloc(2 * n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.driver.Free(at)) })
	pinned, err := k.driver.Pin(n)
	require.NoError(t, err)
	copy(pinned, device.Bytes(values))
	require.NoError(t, k.stream.CopyIn(at, pinned))
	require.NoError(t, k.stream.Zero(at+uintptr(n), n))
	require.NoError(t, k.stream.Sync())
	require.NoError(t, k.driver.Unpin(pinned))
	return at, at + uintptr(n)
}

func (k *card) read(t *testing.T, at uintptr, n int) []float32 {
	t.Helper()
	pinned, err := k.driver.Pin(4 * n)
	require.NoError(t, err)
	require.NoError(t, k.stream.CopyOut(pinned, at))
	require.NoError(t, k.stream.Sync())
	got := append([]float32(nil), device.As[float32](pinned)...)
	require.NoError(t, k.driver.Unpin(pinned))
	return got
}

func TestEveryOperationOfNCCLCopiesInAWorldOfOne(t *testing.T) {
	k := onCard(t)
	if k == nil {
		return
	}
	m, err := k.join(t.Context(), 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close(t.Context())) }()
	want := make([]float32, 1003)
	for i := range want {
		want[i] = number(0, 1, i)
	}
	for kind := nccl.AllReduce; kind <= nccl.ReduceScatter; kind++ {
		from, to := k.memory(t, want)
		require.NoError(t, k.run(m, nccl.Call{Kind: kind, Send: from, Recv: to, Count: len(want), Type: nccl.Float32}))
		require.Equal(t, want, k.read(t, to, len(want)), "%v", kind)
	}
	from, to := k.memory(t, want)
	require.NoError(t, k.run(m, nccl.Call{Kind: nccl.Send, Send: from, Count: len(want), Type: nccl.Float32},
		nccl.Call{Kind: nccl.Recv, Recv: to, Count: len(want), Type: nccl.Float32}))
	require.Equal(t, want, k.read(t, to, len(want)))

	half, err := m.Scaled(nccl.Float32, 0.5)
	require.NoError(t, err)
	require.NoError(t, k.run(m, nccl.Call{Kind: nccl.AllReduce, Send: from, Recv: to, Count: len(want), Type: nccl.Float32, Op: half}))
	for i, v := range k.read(t, to, len(want)) {
		require.Equal(t, want[i]/2, v)
	}
	require.NoError(t, m.Unscale(half))
}

func TestNCCLIsRecordedInAGraphAndReplayed(t *testing.T) {
	k := onCard(t)
	if k == nil {
		return
	}
	m, err := k.join(t.Context(), 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close(t.Context())) }()
	twice, err := m.Scaled(nccl.Float32, 2)
	require.NoError(t, err)
	from, _ := k.memory(t, []float32{1, 2, 3})
	double := nccl.Call{Kind: nccl.AllReduce, Send: from, Recv: from, Count: 3, Type: nccl.Float32, Op: twice}
	require.NoError(t, k.run(m, double)) // what it sets up it sets up outside of the recording
	g, err := k.stream.Capture(func() error { return k.run(m, double, double) })
	require.NoError(t, err)
	require.Equal(t, []float32{2, 4, 6}, k.read(t, from, 3), "a recording does nothing")
	for range 3 {
		require.NoError(t, k.stream.Replay(g))
	}
	require.Equal(t, []float32{128, 256, 384}, k.read(t, from, 3))
	require.NoError(t, g.Close())
}

func TestWhoWaitsInNCCLForARankThatDoesNotComeGivesUp(t *testing.T) {
	k := onCard(t)
	if k == nil {
		return
	}
	c, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := k.join(c, 2)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	m, err := k.join(t.Context(), 1) // another lives
	require.NoError(t, err)
	from, to := k.memory(t, []float32{1, 2, 3})
	require.NoError(t, k.run(m, nccl.Call{Kind: nccl.Broadcast, Send: from, Recv: to, Count: 3, Type: nccl.Float32}))
	require.Equal(t, []float32{1, 2, 3}, k.read(t, to, 3))
	require.NoError(t, m.Abort())
	require.ErrorIs(t, k.run(m, nccl.Call{Kind: nccl.Broadcast, Type: nccl.Float32}), nccl.ErrAborted)
}
