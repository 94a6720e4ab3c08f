package device_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/devicetest"
	"github.com/weft-project/weft/internal/thresholds"
)

// far is a Memory of so many bytes at addresses that mean nothing to the host.
type far struct {
	mu     sync.Mutex
	room   int
	next   uintptr
	taken  map[uintptr][]byte
	closes int
	broken error
}

func newFar(room int) *far { return &far{room: room, next: 1 << 20, taken: map[uintptr][]byte{}} }

func (f *far) Take(n int) (uintptr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > f.room {
		return 0, device.ErrMemory
	}
	f.room -= n
	at := f.next
	f.next += uintptr(n+255)&^255 + 256
	f.taken[at] = make([]byte, n)
	return at, nil
}

func (f *far) Give(at uintptr, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.taken[at]) != n {
		panic("it was not taken so")
	}
	delete(f.taken, at)
	f.room += n
}

// held is how many bytes are taken.
func (f *far) held() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, mem := range f.taken {
		n += len(mem)
	}
	return n
}

// find gives n bytes that lie in what was taken.
func (f *far) find(at uintptr, n int) []byte {
	for base, mem := range f.taken {
		if at >= base && at+uintptr(n) <= base+uintptr(len(mem)) {
			return mem[at-base:][:n]
		}
	}
	panic("nobody took these bytes")
}

func (f *far) Upload(at uintptr, src []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(f.find(at, len(src)), src)
	return f.broken
}

func (f *far) Download(dst []byte, at uintptr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(dst, f.find(at, len(dst)))
	return f.broken
}

func (f *far) Move(dst, src uintptr, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(f.find(dst, n), f.find(src, n))
	return f.broken
}

func (f *far) Close() error { f.closes++; return f.broken }

func TestADeviceOverAnAcceleratorsMemoryKeepsTheContract(t *testing.T) {
	devicetest.Run(t, func(*testing.T) device.Device { return device.Over(device.CUDA(2), newFar(1<<30), 0) })
}

func TestAnAcceleratorGivesBackWhatItTook(t *testing.T) {
	f := newFar(1 << 30)
	d := device.Over(device.CUDA(0), f, 1<<20)
	require.Same(t, f, d.Memory())
	r := rand.New(rand.NewPCG(1, 2))
	var live []*device.Buffer
	for range 300 {
		if n := len(live); n > 0 && r.IntN(2) == 0 {
			require.NoError(t, live[n-1].Release())
			live = live[:n-1]
			continue
		}
		b, err := d.Alloc(r.IntN(100_000))
		require.NoError(t, err)
		require.Zero(t, b.Addr()%256)
		require.NotZero(t, b.Addr())
		_, err = b.Host()
		require.ErrorIs(t, err, device.ErrNotHost)
		live = append(live, b)
		require.LessOrEqual(t, d.Stats().PooledBytes, int64(1<<20), "the bound of the pool")
	}
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "again")
	for _, b := range live {
		require.Equal(t, 0, f.closes, "there are buffers")
		require.NoError(t, d.Upload(b, 0, make([]byte, b.Len())), "they stay valid")
		require.NoError(t, b.Release())
	}
	require.Equal(t, 1, f.closes)
	require.Empty(t, f.taken)
	_, err := d.Alloc(1)
	require.ErrorIs(t, err, device.ErrClosed)
}

func TestAFullAcceleratorGivesBackItsPoolBeforeItRefuses(t *testing.T) {
	d := device.Over(device.CUDA(0), newFar(1<<20), 0)
	for range 8 {
		b, err := d.Alloc(1 << 17)
		require.NoError(t, err)
		defer func() { require.NoError(t, b.Release()) }()
	}
	_, err := d.Alloc(1)
	require.ErrorIs(t, err, device.ErrMemory)
	require.ErrorContains(t, err, "cuda:0: alloc")

	d = device.Over(device.CUDA(0), newFar(1<<20), 0)
	for k := range 8 {
		b, err := d.Alloc(100_000 + 10_000*k)
		require.NoError(t, err)
		require.NoError(t, b.Release())
	}
	require.NotZero(t, d.Stats().PooledBytes)
	b, err := d.Alloc(1 << 20)
	require.NoError(t, err, "what was pooled has been given back")
	require.Zero(t, d.Stats().PooledBytes)
	require.NoError(t, b.Release())
	require.Equal(t, int64(1<<20), d.Trim())
}

func TestAFullAcceleratorLooksForWhatNobodyReaches(t *testing.T) {
	d := device.Over(device.CUDA(0), newFar(1<<20), 0)
	for range 20 { // each as much as there is
		b, err := d.Alloc(1 << 20)
		require.NoError(t, err)
		b.Disown()
		runtime.KeepAlive(b)
	}
}

// Clean-ups run in no order, and on several goroutines.
func TestAFullAcceleratorWaitsForAllThatNobodyReaches(t *testing.T) {
	d := device.Over(device.CUDA(0), newFar(1<<20), 0)
	for range 30 {
		for range 1 << 12 {
			b, err := d.Alloc(1 << 8)
			require.NoError(t, err)
			b.Disown()
		}
		all, err := d.Alloc(1 << 20)
		require.NoError(t, err)
		require.NoError(t, all.Release())
	}
}

func TestErrorsOfAnAcceleratorNameTheDeviceAndTheOperation(t *testing.T) {
	f := newFar(1 << 20)
	d := device.Over(device.CUDA(5), f, 0)
	x, err := d.Alloc(8)
	require.NoError(t, err)
	y, err := d.Alloc(8)
	require.NoError(t, err)
	f.broken = errors.New("oh")
	require.EqualError(t, d.Upload(x, 0, make([]byte, 8)), "device cuda:5: upload: oh")
	require.EqualError(t, d.Download(make([]byte, 8), x, 0), "device cuda:5: download: oh")
	require.EqualError(t, d.CopyWithin(x, y), "device cuda:5: copy: oh")
	require.NoError(t, d.CopyWithin(x, x), "nothing moves")
	require.NoError(t, errors.Join(x.Release(), y.Release()))
	require.EqualError(t, d.Close(), "device cuda:5: close: oh")
	_, err = d.Alloc(1 << 60)
	require.ErrorIs(t, err, device.ErrBounds)
}

func TestAnAcceleratorsMemoryIsFoundAgainInOneOrderWhateverTheOrderItCameBackIn(t *testing.T) {
	d := device.Over(device.CUDA(0), newFar(1<<20), 0)
	defer func() { require.NoError(t, d.Close()) }()
	r := rand.New(rand.NewPCG(1, 1))
	var first []uintptr
	for range 20 {
		var bufs []*device.Buffer
		var at []uintptr
		for k := range 12 {
			b, err := d.Alloc(300 + 4000*(k%2))
			require.NoError(t, err)
			bufs, at = append(bufs, b), append(at, b.Addr())
		}
		if first == nil {
			first = at
		}
		require.Equal(t, first, at)
		for _, k := range r.Perm(len(bufs)) {
			require.NoError(t, bufs[k].Release())
		}
	}
}

func TestACopyBetweenAcceleratorsIsWholeWhateverPiecesItGoesIn(t *testing.T) {
	a, b := device.Over(device.CUDA(0), newFar(1<<30), 0), device.Over(device.CUDA(1), newFar(1<<30), 0)
	sizes := thresholds.Around(thresholds.Messages)
	for range sizes.Len() {
		at, side := sizes.Next()
		raw := make([]byte, at.Elems(1, side))
		for k := range raw {
			raw[k] = byte(k % 251)
		}
		from, err := a.Alloc(len(raw))
		require.NoError(t, err)
		to, err := b.Alloc(len(raw))
		require.NoError(t, err)
		require.NoError(t, a.Upload(from, 0, raw))
		require.NoError(t, device.Copy(to, from))
		got := make([]byte, len(raw))
		require.NoError(t, b.Download(got, to, 0))
		require.True(t, bytes.Equal(raw, got), "%d bytes", len(raw))
		require.NoError(t, errors.Join(from.Release(), to.Release()))
	}
	require.Empty(t, sizes.Missing())
}
