//go:build linux

package cudaipc

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// cudaPlay is a channel whose peer the test plays, with an outbox of its own on the same GPU.
type cudaPlay struct {
	*channel
	peer   net.Conn
	dev    *device.Accelerator // the peer's
	box    device.Scratch
	handle []byte

	mu    sync.Mutex
	words []word // that the channel said
}

func newCUDAPlay(t testing.TB) *cudaPlay {
	c := ptx.Config{Host: new(ptx.Host), UUID: "GPU-1", Bytes: 14 << 20}
	here, there := ptxtest.GPU(t, device.CUDA(0), c), ptxtest.GPU(t, device.CUDA(1), c)
	a, b := transporttest.UnixPair(t)
	p := &cudaPlay{peer: b, dev: there}
	mem, _ := here.Exporter()
	env := lane.Env{Say: func([]byte) error { return nil }, Suspect: func(error) {}, Count: &lane.Traffic{}}
	env.Find = func(byte) lane.Channel { return nil }
	env.Say = func(w []byte) error {
		parsed, err := parseWord(append([]byte{}, w...))
		require.NoError(t, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.words = append(p.words, parsed)
		return nil
	}
	p.channel = newChannel(env, a, []accelerator{{nameOf(mem.Identity()), here, mem}})
	var err error
	p.box, err = there.Borrow(1 << 20)
	require.NoError(t, err)
	out, _ := there.Exporter()
	p.handle, err = out.Export(p.box.Addr())
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close(wire.ErrClosed)
		_ = b.Close()
		<-p.left
		p.box.Return()
	})
	return p
}

// hears says a word to the channel.
func (p *cudaPlay) hears(w word) error { return p.Control(w.append(nil)) }

// said waits for a word of the channel.
func (p *cudaPlay) said(t testing.TB, what byte) (found word) {
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

// opened has the channel open the peer's outbox, which is outbox 0.
func (p *cudaPlay) opened(t testing.TB) {
	require.NoError(t, p.hears(word{wordOutbox, 0, 1 << 20, 0, append(p.peers[0].name[:], p.handle...)}))
	require.EqualValues(t, 1, p.said(t, wordReady).b)
}

func TestAPieceOutsideOfAnOutboxIsABadWordAndHarmsNobody(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	require.ErrorIs(t, p.hears(word{what: wordPiece, c: 1}), wire.ErrFrame, "there is no outbox yet")
	p.opened(t)
	for name, w := range map[string]word{
		"too long": {what: wordPiece, c: 1<<20 + 1}, "too far": {what: wordPiece, b: 1 << 20, c: 1}, "beyond": {what: wordPiece, b: 1<<20 - 256, c: 257},
		"wraps": {what: wordPiece, b: 256, c: 1<<64 - 1}, "empty": {what: wordPiece}, "no such outbox": {what: wordPiece, b: 3 << 48, c: 4},
		"not told of": {what: wordBack}, "back elsewhere": {what: wordBack, a: 5}, "never begun": {what: wordGo, a: 9}, "never stopped": {what: wordStop, a: 9},
		"opened again":         {wordOutbox, 0, 1 << 20, 0, append(p.peers[0].name[:], p.handle...)},
		"outbox without count": {wordOutbox, 99, 1 << 20, 0, append(p.peers[0].name[:], p.handle...)},
		"on another GPU":       {wordOutbox, 1, 1 << 20, 0, append(make([]byte, nameSize), p.handle...)},
		"not asked for":        {what: wordReady, a: 0, b: 1},
	} {
		require.ErrorIs(t, p.hears(w), wire.ErrFrame, name)
	}
	for range 4 { // more at a time than the outbox has
		_ = p.hears(word{what: wordPiece, a: 1, c: 1 << 18})
	}
	require.ErrorIs(t, p.hears(word{what: wordPiece, a: 1, c: 1}), wire.ErrFrame)
}

func TestAnOutboxThatIsSmallerThanItSaysIsNotRead(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	suspected := make(chan error, 1)
	p.env.Suspect = func(err error) { suspected <- err }
	require.NoError(t, p.hears(word{wordOutbox, 0, 1<<20 + 4096, 0, append(p.peers[0].name[:], p.handle...)}))
	require.ErrorIs(t, <-suspected, wire.ErrFrame)
	require.ErrorIs(t, p.hears(word{what: wordPiece, c: 4}), wire.ErrFrame, "it is not open")
}

func TestTicketsThatDoNotFitTheirTensorsAreRefused(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	p.opened(t)
	place := func(device.ID, int) (*device.Buffer, error) { return p.peers[0].dev.Alloc(64) }
	ts := func() []wire.Tensor {
		return []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{16}, Device: device.CUDA(0)}}
	}
	for name, b := range map[string][]byte{
		"none": nil, "short": make([]byte, 10), "of other bytes": ticket{id: 1, bytes: 60}.append(nil),
		"with a lane for nothing": ticket{id: 2, bytes: 64, lane: 2, rest: []byte{1}}.append(nil), "not eager and not lazy": append(make([]byte, 16), 7, 0),
	} {
		x := ts()
		require.ErrorIs(t, p.Fetch(t.Context(), b, x, place), wire.ErrFrame, name)
		require.Nil(t, x[0].Buf, name)
	}
	k := ticket{id: 9, bytes: 64, eager: true}
	require.NoError(t, p.hears(word{what: wordPiece, a: 9, b: 0, c: 65}))
	x := ts()
	require.ErrorIs(t, p.Fetch(t.Context(), k.append(nil), x, place), wire.ErrFrame, "a piece that is larger than the tensors")
	require.Nil(t, x[0].Buf)
	p.said(t, wordBack)
	for p.said(t, wordStop).a != 9 { //nolint:revive // those of the tickets above come first
	}
	require.ErrorIs(t, p.Fetch(t.Context(), k.append(nil), x, place), wire.ErrFrame, "a second time")
	require.NoError(t, p.hears(word{what: wordOver, a: 10}))
	require.ErrorIs(t, p.Fetch(t.Context(), ticket{id: 10, bytes: 64}.append(nil), x, place), wire.ErrReset)
	c, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Fetch(c, ticket{id: 11, bytes: 64}.append(nil), x, place), context.Canceled)
}

func TestAPeerThatDiesGivesTheOutboxBack(t *testing.T) {
	leak.Check(t)
	p := newCUDAPlay(t)
	dev := p.peers[0].dev
	x, err := dev.Alloc(1 << 18)
	require.NoError(t, err)
	ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{1 << 16}, Device: device.CUDA(1), Buf: x}}
	require.False(t, p.Takes(ts, 1<<18), "there is no outbox yet")
	require.NoError(t, p.hears(word{what: wordReady, a: p.said(t, wordOutbox).a, b: 1}))
	require.True(t, p.Takes(ts, 1<<18))
	var moving []lane.Transfer
	for range 12 { // more than the outbox holds
		tr, err := p.Begin(ts)
		require.NoError(t, err)
		moving = append(moving, tr)
	}
	errs := make(chan error, len(moving))
	for _, tr := range moving {
		go func() { errs <- tr.Deliver(t.Context()) }()
	}
	p.said(t, wordPiece)
	require.NoError(t, p.peer.Close())
	require.Eventually(t, func() bool { return !p.Takes(ts, 1<<18) }, 10*time.Second, time.Millisecond)
	p.Close(wire.ErrPeerLost)
	for range moving {
		if err := <-errs; err != nil { // what went before it was fetched has gone
			require.ErrorIs(t, err, wire.ErrPeerLost)
		}
	}
	require.NoError(t, x.Release()) // and ptxtest sees that nothing is left
}

func FuzzCUDAWordsAndTickets(f *testing.F) {
	f.Add(word{what: wordPiece, a: 1, b: 256, c: 512}.append(nil), ticket{id: 1, bytes: 64, eager: true}.append(nil))
	f.Add(word{wordOutbox, 1, 1 << 20, 0, make([]byte, nameSize+64)}.append(nil), ticket{id: 1, bytes: 64, lane: 2, rest: []byte{1}}.append(nil))
	f.Fuzz(func(t *testing.T, word, ticket []byte) {
		if w, err := parseWord(word); err == nil {
			require.Equal(t, word, w.append(nil))
		} else {
			require.ErrorIs(t, err, wire.ErrFrame)
		}
		if k, err := parseTicket(ticket); err == nil {
			require.Equal(t, ticket, k.append(nil))
		} else {
			require.ErrorIs(t, err, wire.ErrFrame)
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
				_ = p.hears(word{what: wordOver, a: id})
			case 1:
				_ = p.hears(word{what: []byte{wordGo, wordStop, wordBack, wordReady}[r.IntN(4)], a: id})
			case 2, 3:
				_ = p.hears(word{what: wordPiece, a: id, b: r.Uint64N(1 << 20), c: r.Uint64N(1 << 12)})
			case 4:
				k := ticket{id: id, bytes: 1 << 12, eager: r.IntN(2) == 0}.append(nil)
				if r.IntN(3) == 0 {
					p.Refuse(k)
					continue
				}
				wg.Go(func() {
					ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{1 << 10}, Device: device.CUDA(0)}}
					if p.Fetch(c, k, ts, func(_ device.ID, n int) (*device.Buffer, error) { return p.peers[0].dev.Alloc(n) }) == nil {
						_ = ts[0].Buf.Release()
					}
				})
			}
		}
		cancel()
		wg.Wait()
	})
}
