package gpus

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/internal/turns"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// WithWindow is a configuration whose windows have halves of so many bytes, and fold up to so many
// at once.
func (cfg Config) WithWindow(half, oneShot int) Config {
	cfg.half, cfg.oneShot = half, oneShot
	return cfg
}

// Windows are what of the others' memory is open, and whether the own is set aside.
func (a *Attached) Windows() (open int, own bool) {
	own = a.window.size > 0
	select {
	case <-a.window.done:
		own = false
	default:
	}
	for r, at := range a.window.at {
		if at == 0 || r == a.g.Rank() {
			continue
		}
		if own || a.window.mem.Unimport(at) == nil { // what is closed cannot be closed again
			open++
		}
	}
	return open, own
}

// The sizes of windows as they are.
const (
	OneShot = oneShot
	Half    = defaultHalf
)

// card is a device of the interpreter, with kernels.
func card(t *testing.T, c ptx.Config) *Device {
	m := ptxtest.New(c)
	a, err := gpu.On(m, device.CUDA(0))
	require.NoError(t, err)
	ptxtest.Watch(t, m, a)
	d, err := On(a)
	require.NoError(t, err)
	return d
}

// A member may say anything of its window: what is not as it says is not opened for good.
func TestAWindowThatIsNotWhatAMemberSaysIsRefused(t *testing.T) {
	host := new(ptx.Host)
	here, there := card(t, ptx.Config{Host: host}), card(t, ptx.Config{Host: host})
	const half = 1 << 10
	size := windowHead + 2*half
	nonce := []byte("a nonce that nobody else has")
	export := func(bytes int, head []byte) []byte {
		own, err := there.acc.Borrow(bytes)
		require.NoError(t, err)
		t.Cleanup(own.Return)
		require.NoError(t, there.mem.Upload(own.Addr(), head))
		handle, err := there.mem.(device.Folder).Export(own.Addr())
		require.NoError(t, err)
		return handle
	}
	good := view{Handle: export(size, nonce), Nonce: nonce, Half: half}
	random := make([]byte, 64)
	for i := range random {
		random[i] = byte(rand.IntN(256))
	}
	for want, v := range map[string]view{
		"":                                      good,
		"a window of 256 bytes; expected 2304":  {Handle: export(256, nonce), Nonce: nonce, Half: half},
		"is not what it says":                   {Handle: export(size, bytes.ToUpper(nonce)), Nonce: nonce, Half: half},
		"halves of 512 bytes; expected 1024":    {Handle: good.Handle, Nonce: nonce, Half: half / 2},
		"no memory of this host has the handle": {Handle: random, Nonce: nonce, Half: half},
		"a handle of 3 bytes; one has 64":       {Handle: random[:3], Nonce: nonce, Half: half},
		"a nonce of 257 bytes":                  {Handle: good.Handle, Nonce: make([]byte, windowHead+1), Half: half},
	} {
		w := &window{half: half, mem: here.mem.(device.Folder), size: size, at: make([]uintptr, 2)}
		err := w.openAs(0, []view{{}, v})
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
		if w.at[1] != 0 {
			require.NoError(t, w.mem.Unimport(w.at[1]))
		}
	}
}

// Block holds up what is reduced by the window here. It is released once. End ends the window.
func (a *Attached) Block() (release func()) {
	over := make(chan struct{})
	k := turns.Key{Group: "block"}
	at := a.window.queue.lineUp(k)
	a.window.queue.settle(k, []uint64{at}, &job{done: make(chan struct{}), do: func() error { <-over; return nil }})
	return func() { close(over) }
}

// End ends the window, as an operation does that fails.
func (a *Attached) End(why error) { a.window.expire(why) }

// TakeWhenEnded has a communicator that has ended meanwhile get NCCL's.
func TakeWhenEnded(comm *nccl.Comm) {
	m := newComm(nil, nil, Config{}, "x")
	m.end(nccl.ErrClosed)
	m.take(comm)
}

// OpenWindow opens a window alone, after something that has failed, and closes it.
func OpenWindow(c context.Context, g *collective.Group, d *Device, failed error) error {
	w, err := openWindow(c, g, d, Config{}, failed)
	return errors.Join(err, w.Close(c))
}
