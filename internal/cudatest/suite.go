package cudatest

import (
	_ "embed" // the kernels
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
)

// Kernels is the text of the suite's kernels.
//
//go:embed testdata/kernels.ptx
var kernels []byte

// Kernels is the text of the suite's kernels.
func Kernels() []byte { return kernels }

// Suite is a driver to be held to the contract.
type Suite struct {
	// Open gives a fresh driver; the suite closes it.
	Open func(t *testing.T) cuda.Driver
	// Two gives drivers that open each other's memory, as two processes of one host do; nil where
	// there is no way to have them in a test.
	Two func(t *testing.T) (a, b cuda.Driver)
	// Peers gives drivers of two GPUs that reach one another; nil where there are none.
	Peers func(t *testing.T) (a, b cuda.Driver)
	// Faults says that a wild address of a kernel loses the driver that Open gave, and nothing
	// else.
	Faults bool
}

// Run holds it to the contract.
func Run(t *testing.T, s Suite) {
	for _, c := range []struct {
		name string
		test func(*rig)
	}{
		{"a driver says what it is", info},
		{"memory is aligned, distinct, counted and limited", memory},
		{"bytes come back as they went", roundTrip},
		{"memory is cleared and copied by pieces", pieces},
		{"pinned memory is given and returned", pinned},
		{"text that is no module, and names that are no kernels, are refused", images},
		{"kernels get their arguments", arguments},
		{"kernels get the shared memory that they ask for", sharedMemory},
		{"launches are done all or none, where one is refused", refused},
		{"a stream keeps nothing of a list", lists},
		{"a stream works in order", order},
		{"a stream waits for another's event", waits},
		{"an event that nobody recorded is not waited for", unrecorded},
		{"events tell the time between them", times},
		{"what is captured is done when it is replayed, and as often", capture},
		{"a capture that fails leaves the stream as it was", captureFails},
		{"a stream that is captured does not wait", captureSync},
		{"many goroutines work at once", concurrent},
		{"a closed driver refuses work", closed},
	} {
		t.Run(c.name, func(t *testing.T) { with(t, s.Open(t), c.test) })
	}
	if s.Two != nil {
		t.Run("memory of another process is opened by its handle", func(t *testing.T) {
			a, b := s.Two(t)
			with(t, a, func(x *rig) { with(t, b, func(y *rig) { exported(x, y) }) })
		})
	}
	if s.Peers != nil {
		t.Run("bytes go straight to a GPU within reach", func(t *testing.T) {
			a, b := s.Peers(t)
			with(t, a, func(x *rig) { with(t, b, func(y *rig) { peers(x, y) }) })
		})
	}
	if s.Faults {
		t.Run("a fault loses the device, and what it held can be given back", func(t *testing.T) { with(t, s.Open(t), faults) })
	}
}

// rig is a driver with a stream and the kernels.
type rig struct {
	*testing.T
	d   cuda.Driver
	s   cuda.Stream
	mod cuda.Module
}

func with(t *testing.T, d cuda.Driver, test func(*rig)) {
	r := &rig{T: t, d: d}
	defer func() { require.NoError(t, d.Close()) }()
	var err error
	r.s, err = d.Stream()
	require.NoError(t, err)
	r.mod, err = d.Load(kernels)
	require.NoError(t, err)
	test(r)
}

func (r *rig) alloc(n int) uintptr {
	r.Helper()
	at, err := r.d.Alloc(n)
	require.NoError(r, err)
	return at
}

func (r *rig) pin(n int) []byte {
	r.Helper()
	b, err := r.d.Pin(n)
	require.NoError(r, err)
	require.Len(r, b, n)
	return b
}

func (r *rig) event() cuda.Event {
	r.Helper()
	e, err := r.d.Event()
	require.NoError(r, err)
	return e
}

func (r *rig) timer() cuda.Timer {
	r.Helper()
	e, err := r.d.Timer()
	require.NoError(r, err)
	return e
}

func (r *rig) stream() cuda.Stream {
	r.Helper()
	s, err := r.d.Stream()
	require.NoError(r, err)
	return s
}

func (r *rig) fn(name string, shared int) cuda.Func {
	r.Helper()
	f, err := r.mod.Func(name, shared)
	require.NoError(r, err)
	require.Equal(r, name, f.Name())
	return f
}

// up brings numbers to the device.
func (r *rig) up(v ...uint32) uintptr {
	r.Helper()
	at, b := r.alloc(4*len(v)), r.pin(4*len(v))
	for k, x := range v {
		binary.LittleEndian.PutUint32(b[4*k:], x)
	}
	require.NoError(r, r.s.CopyIn(at, b))
	require.NoError(r, r.s.Sync())
	require.NoError(r, r.d.Unpin(b))
	return at
}

// down waits for the stream and brings n numbers back.
func (r *rig) down(at uintptr, n int) []uint32 {
	r.Helper()
	b := r.pin(4 * n)
	require.NoError(r, r.s.CopyOut(b, at))
	require.NoError(r, r.s.Sync())
	out := make([]uint32, n)
	for k := range out {
		out[k] = binary.LittleEndian.Uint32(b[4*k:])
	}
	require.NoError(r, r.d.Unpin(b))
	return out
}

func one(n int) [3]uint32 { return [3]uint32{uint32(n), 1, 1} }

// fill adds a launch of weft_fill.
func (r *rig) fill(l *cuda.List, at uintptr, value, n int) {
	l.Add(r.fn("weft_fill", 0), one((n+31)/32), one(32), 0)
	l.Addr(at)
	l.U32(uint32(value))
	l.U32(uint32(n))
}

// mix adds a launch of weft_mix.
func (r *rig) mix(l *cuda.List, a, b, out uintptr, n int) {
	l.Add(r.fn("weft_mix", 0), one((n+63)/64), one(64), 0)
	l.Addr(a)
	l.Addr(b)
	l.Addr(out)
	l.U32(uint32(n))
}

func repeated(v uint32, n int) []uint32 {
	out := make([]uint32, n)
	for k := range out {
		out[k] = v
	}
	return out
}
