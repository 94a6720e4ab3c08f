package bulk

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// stripesOf is a member of a job, which may have stripes.
func stripesOf(t testing.TB, token, name string, now func() time.Time) *identity.Identity {
	id, err := identity.FromToken(token, transporttest.Job, name, now)
	require.NoError(t, err)
	return id
}

// words carries what a channel says to its peer, in order and without waiting.
type words struct {
	mu     sync.Mutex
	more   sync.Cond
	queue  [][]byte
	closed bool
}

func newWords() *words {
	w := &words{}
	w.more.L = &w.mu
	return w
}

func (w *words) say(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return wire.ErrClosed
	}
	w.queue = append(w.queue, slices.Clone(b))
	w.more.Signal()
	return nil
}

func (w *words) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.more.Signal()
}

// carry gives what is said to h.
func (w *words) carry(h lane.Channel, failed func(error)) {
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.closed {
			w.more.Wait()
		}
		if len(w.queue) == 0 {
			w.mu.Unlock()
			return
		}
		b := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		if err := h.Control(b); err != nil {
			failed(err)
		}
	}
}

// channels are the two ends of a lane, with what their links would have been told.
type haulers struct {
	ends    [2]lane.Channel
	count   [2]lane.Traffic
	suspect chan error // what either end suspected, and words that were refused
}

// join joins two ends.
func join(t testing.TB, ends [2]*lane.End) *haulers {
	p := &haulers{suspect: make(chan error, 100)}
	tell := func(err error) { p.suspect <- err }
	said := [2]*words{newWords(), newWords()}
	for i, end := range ends {
		p.ends[i] = end.NewChannel(lane.Env{Say: said[i].say, Suspect: tell, Count: &p.count[i]})
	}
	for i := range said {
		go said[i].carry(p.ends[1-i], tell)
	}
	t.Cleanup(func() {
		for i, h := range p.ends {
			h.Close(wire.ErrClosed)
			said[i].close()
		}
	})
	return p
}

// overTLS are ends over TLS connections on this machine, made as links make them.
func overTLS(t testing.TB, n int) [2]*lane.End {
	m := New(stripesOf(t, transporttest.Token(), "w", time.Now), false, slog.Default())
	m.stripes = n
	s, err := m.Serve(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer s.Close()
	with := lane.Peer{Secret: [32]byte{1}, Addr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	offer, err := m.Offer()
	require.NoError(t, err)
	answer, wait, err := s.Expect(with, offer)
	require.NoError(t, err)
	c := t.Context()
	joined := make(chan *lane.End, 1)
	go func() {
		end, err := m.Join(c, with, answer)
		if err != nil {
			t.Error(err)
		}
		joined <- end
	}()
	served, err := wait(c)
	require.NoError(t, err)
	dialled := <-joined
	require.NotNil(t, dialled)
	return [2]*lane.End{dialled, served}
}

// pattern is n bytes that look random, and are the same for the same n.
func pattern(n int) []byte {
	b, r := make([]byte, 0, n+8), rand.NewPCG(uint64(n), 7)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// tensorOn makes a tensor of n numbers, whose bytes are a pattern.
func tensorOn(t testing.TB, d device.Device, n int) wire.Tensor {
	buf, err := d.Alloc(4 * n)
	require.NoError(t, err)
	require.NoError(t, d.Upload(buf, 0, pattern(4*n)))
	return wire.Tensor{Dtype: device.Float32, Shape: device.Shape{n}, Device: d.ID(), Buf: buf}
}

// move sends tensors from one end to the other.
func (p *haulers) move(c context.Context, from int, ts, got []wire.Tensor, place wire.Place) (sent, fetched error) {
	t, err := p.ends[from].Begin(ts)
	if err != nil {
		return err, nil
	}
	done := make(chan error, 1)
	go func() { done <- t.Deliver(c) }()
	fetched = p.ends[1-from].Fetch(c, t.Ticket(), got, place)
	return <-done, fetched
}
