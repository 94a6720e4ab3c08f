//go:build linux

package transport

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weft-project/weft/transport/internal/transporttest"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/device/cuda/ptx/ptxtest"
	"github.com/weft-project/weft/internal/leak"
)

// cudaPlay is a hauler whose peer the test plays, with an outbox of its own on the same GPU.
type cudaPlay struct {
	*cudaHauler
	peer   net.Conn
	dev    *device.Accelerator // the peer's
	box    device.Scratch
	handle []byte

	mu    sync.Mutex
	words []cudaWord // that the hauler said
}

func newCUDAPlay(t testing.TB) *cudaPlay {
	c := ptx.Config{Host: new(ptx.Host), UUID: "GPU-1", Bytes: 14 << 20}
	here, there := ptxtest.GPU(t, device.CUDA(0), c), ptxtest.GPU(t, device.CUDA(1), c)
	a, b := transporttest.UnixPair(t)
	p := &cudaPlay{peer: b, dev: there}
	mem, _ := here.Exporter()
	env := laneEnv{say: func([]byte) error { return nil }, suspect: func(error) {}, count: &traffic{}}
	env.find = func(byte) hauler { return nil }
	env.say = func(w []byte) error {
		parsed, err := parseCUDAWord(append([]byte{}, w...))
		require.NoError(t, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.words = append(p.words, parsed)
		return nil
	}
	p.cudaHauler = newCUDAHauler(env, a, []cudaPeer{{nameOf(mem.Identity()), here, mem}})
	var err error
	p.box, err = there.Borrow(1 << 20)
	require.NoError(t, err)
	out, _ := there.Exporter()
	p.handle, err = out.Export(p.box.Addr())
	require.NoError(t, err)
	t.Cleanup(func() {
		p.close(ErrClosed)
		_ = b.Close()
		<-p.left
		p.box.Return()
	})
	return p
}

// hears says a word to the hauler.
func (p *cudaPlay) hears(w cudaWord) error { return p.control(w.append(nil)) }

// said waits for a word of the hauler.
func (p *cudaPlay) said(t testing.TB, what byte) (found cudaWord) {
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, w := range p.words {
			if w.what == what {
				found = w
				p.words = append(p.words[:i:i], p.words[i+1:]...)
				return true
			}
		}
		return false
	}, 10*time.Second, time.Millisecond, "word %d", what)
	return found
}

// opened has the hauler open the peer's outbox, which is outbox 0.
func (p *cudaPlay) opened(t testing.TB) {
	require.NoError(t, p.hears(cudaWord{cudaOutbox, 0, 1 << 20, 0, append(p.peers[0].name[:], p.handle...)}))
	require.EqualValues(t, 1, p.said(t, cudaReady).b)
}

func TestAPieceOutsideOfAnOutboxIsABadWordAndHarmsNobody(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	require.ErrorIs(t, p.hears(cudaWord{what: cudaPiece, c: 1}), ErrFrame, "there is no outbox yet")
	p.opened(t)
	for name, w := range map[string]cudaWord{
		"too long": {what: cudaPiece, c: 1<<20 + 1}, "too far": {what: cudaPiece, b: 1 << 20, c: 1}, "beyond": {what: cudaPiece, b: 1<<20 - 256, c: 257},
		"wraps": {what: cudaPiece, b: 256, c: 1<<64 - 1}, "empty": {what: cudaPiece}, "no such outbox": {what: cudaPiece, b: 3 << 48, c: 4},
		"not told of": {what: cudaBack}, "back elsewhere": {what: cudaBack, a: 5}, "never begun": {what: cudaGo, a: 9}, "never stopped": {what: cudaStop, a: 9},
		"opened again":         {cudaOutbox, 0, 1 << 20, 0, append(p.peers[0].name[:], p.handle...)},
		"outbox without count": {cudaOutbox, 99, 1 << 20, 0, append(p.peers[0].name[:], p.handle...)},
		"on another GPU":       {cudaOutbox, 1, 1 << 20, 0, append(make([]byte, cudaName), p.handle...)},
		"not asked for":        {what: cudaReady, a: 0, b: 1},
	} {
		require.ErrorIs(t, p.hears(w), ErrFrame, name)
	}
	for range 4 { // more at a time than the outbox has
		_ = p.hears(cudaWord{what: cudaPiece, a: 1, c: 1 << 18})
	}
	require.ErrorIs(t, p.hears(cudaWord{what: cudaPiece, a: 1, c: 1}), ErrFrame)
}

func TestAnOutboxThatIsSmallerThanItSaysIsNotRead(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	suspected := make(chan error, 1)
	p.env.suspect = func(err error) { suspected <- err }
	require.NoError(t, p.hears(cudaWord{cudaOutbox, 0, 1<<20 + 4096, 0, append(p.peers[0].name[:], p.handle...)}))
	require.ErrorIs(t, <-suspected, ErrFrame)
	require.ErrorIs(t, p.hears(cudaWord{what: cudaPiece, c: 4}), ErrFrame, "it is not open")
}

func TestTicketsThatDoNotFitTheirTensorsAreRefused(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	p.opened(t)
	place := func(device.ID, int) (*device.Buffer, error) { return p.peers[0].dev.Alloc(64) }
	ts := func() []Tensor {
		return []Tensor{{Dtype: device.Float32, Shape: device.Shape{16}, Device: device.CUDA(0)}}
	}
	for name, b := range map[string][]byte{
		"none": nil, "short": make([]byte, 10), "of other bytes": cudaTicket{id: 1, bytes: 60}.append(nil),
		"with a lane for nothing": cudaTicket{id: 2, bytes: 64, lane: 2, rest: []byte{1}}.append(nil), "not eager and not lazy": append(make([]byte, 16), 7, 0),
	} {
		x := ts()
		require.ErrorIs(t, p.fetch(t.Context(), b, x, place), ErrFrame, name)
		require.Nil(t, x[0].Buf, name)
	}
	k := cudaTicket{id: 9, bytes: 64, eager: true}
	require.NoError(t, p.hears(cudaWord{what: cudaPiece, a: 9, b: 0, c: 65}))
	x := ts()
	require.ErrorIs(t, p.fetch(t.Context(), k.append(nil), x, place), ErrFrame, "a piece that is larger than the tensors")
	require.Nil(t, x[0].Buf)
	p.said(t, cudaBack)
	for p.said(t, cudaStop).a != 9 { //nolint:revive // those of the tickets above come first
	}
	require.ErrorIs(t, p.fetch(t.Context(), k.append(nil), x, place), ErrFrame, "a second time")
	require.NoError(t, p.hears(cudaWord{what: cudaOver, a: 10}))
	require.ErrorIs(t, p.fetch(t.Context(), cudaTicket{id: 10, bytes: 64}.append(nil), x, place), ErrReset)
	c, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.fetch(c, cudaTicket{id: 11, bytes: 64}.append(nil), x, place), context.Canceled)
}

func TestAPeerThatDiesGivesTheOutboxBack(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	dev := p.peers[0].dev
	x, err := dev.Alloc(1 << 18)
	require.NoError(t, err)
	ts := []Tensor{{Dtype: device.Float32, Shape: device.Shape{1 << 16}, Device: device.CUDA(1), Buf: x}}
	require.False(t, p.takes(ts, 1<<18), "there is no outbox yet")
	require.NoError(t, p.hears(cudaWord{what: cudaReady, a: p.said(t, cudaOutbox).a, b: 1}))
	require.True(t, p.takes(ts, 1<<18))
	var moving []transfer
	for range 12 { // more than the outbox holds
		tr, err := p.begin(ts)
		require.NoError(t, err)
		moving = append(moving, tr)
	}
	errs := make(chan error, len(moving))
	for _, tr := range moving {
		go func() { errs <- tr.deliver(t.Context()) }()
	}
	p.said(t, cudaPiece)
	require.NoError(t, p.peer.Close())
	require.Eventually(t, func() bool { return !p.takes(ts, 1<<18) }, 10*time.Second, time.Millisecond)
	p.close(ErrPeerLost)
	for range moving {
		if err := <-errs; err != nil { // what went before it was fetched has gone
			require.ErrorIs(t, err, ErrPeerLost)
		}
	}
	require.NoError(t, x.Release()) // and ptxtest sees that nothing is left
}

func FuzzCUDAWordsAndTickets(f *testing.F) {
	f.Add(cudaWord{what: cudaPiece, a: 1, b: 256, c: 512}.append(nil), cudaTicket{id: 1, bytes: 64, eager: true}.append(nil))
	f.Add(cudaWord{cudaOutbox, 1, 1 << 20, 0, make([]byte, cudaName+64)}.append(nil), cudaTicket{id: 1, bytes: 64, lane: 2, rest: []byte{1}}.append(nil))
	f.Fuzz(func(t *testing.T, word, ticket []byte) {
		if w, err := parseCUDAWord(word); err == nil {
			require.Equal(t, word, w.append(nil))
		} else {
			require.ErrorIs(t, err, ErrFrame)
		}
		if k, err := parseCUDATicket(ticket); err == nil {
			require.Equal(t, ticket, k.append(nil))
		} else {
			require.ErrorIs(t, err, ErrFrame)
		}
	})
}

func FuzzAPeerOfLaneCUDA(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := newCUDAPlay(t)
		r := rand.New(rand.NewPCG(seed, 1))
		p.opened(t)
		c, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 30 {
			id := r.Uint64N(4)
			switch r.IntN(5) {
			case 0:
				_ = p.hears(cudaWord{what: cudaOver, a: id})
			case 1:
				_ = p.hears(cudaWord{what: []byte{cudaGo, cudaStop, cudaBack, cudaReady}[r.IntN(4)], a: id})
			case 2, 3:
				_ = p.hears(cudaWord{what: cudaPiece, a: id, b: r.Uint64N(1 << 20), c: r.Uint64N(1 << 12)})
			case 4:
				k := cudaTicket{id: id, bytes: 1 << 12, eager: r.IntN(2) == 0}.append(nil)
				if r.IntN(3) == 0 {
					p.refuse(k)
					continue
				}
				wg.Go(func() {
					ts := []Tensor{{Dtype: device.Float32, Shape: device.Shape{1 << 10}, Device: device.CUDA(0)}}
					if p.fetch(c, k, ts, func(_ device.ID, n int) (*device.Buffer, error) { return p.peers[0].dev.Alloc(n) }) == nil {
						_ = ts[0].Buf.Release()
					}
				})
			}
		}
		cancel()
		wg.Wait()
	})
}
