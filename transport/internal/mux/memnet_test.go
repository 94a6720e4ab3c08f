package mux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// memNet is a Network whose links are sessions over conduits in memory.
type memNet struct {
	cfg   MemConfig
	codec *wire.Codec

	mu        sync.Mutex
	listeners map[string]*memListener
}

// MemConfig says how the conduits of a network in memory behave.
type MemConfig struct {
	Limits  wire.Limits
	Streams uint64                           // default 4096
	Chop    func(r *rand.Rand, most int) int // how many bytes a read gives, or TryWrite takes; nil: all
	Unix    bool                             // they are unix sockets
	Haul    bool                             // large tensors go by a channel
}

func NewMemNetwork(cfg MemConfig) (wire.Network, error) {
	codec, err := wire.NewCodec(cfg.Limits)
	if cfg.Streams == 0 {
		cfg.Streams = 4096
	}
	return &memNet{cfg: cfg, codec: codec, listeners: map[string]*memListener{}}, err
}

type memListener struct {
	net   *memNet
	addr  string
	queue chan wire.Link
	done  chan struct{}
	once  sync.Once
}

func (n *memNet) Listen(_ context.Context, addr string) (wire.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &memListener{net: n, addr: fmt.Sprintf("%s#%d", addr, len(n.listeners)), queue: make(chan wire.Link, 100), done: make(chan struct{})}
	n.listeners[l.addr] = l
	return l, nil
}

func (n *memNet) Dial(c context.Context, addr string) (wire.Link, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if c.Err() != nil || l == nil {
		return nil, &wire.Error{Op: "dial", Peer: addr, Err: wire.ErrUnreachable, Cause: c.Err()}
	}
	a, b := n.pair()
	l.queue <- b
	return a, nil
}

func (l *memListener) Addr() string { return l.addr }

func (l *memListener) Accept(c context.Context) (wire.Link, error) {
	select {
	case s := <-l.queue:
		return s, nil
	case <-l.done:
		return nil, &wire.Error{Op: "accept at", Peer: l.addr, Err: wire.ErrClosed}
	case <-c.Done():
		return nil, &wire.Error{Op: "accept at", Peer: l.addr, Err: c.Err()}
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// memLink makes a session a Link.
type memLink struct{ *Session }

func (memLink) Vouches(string, int) error { return nil }

func (memLink) Lanes() []wire.LaneState { return []wire.LaneState{{Name: "memory"}} }

// pair makes both ends of a link.
func (n *memNet) pair() (a, b memLink) {
	x, y := n.conduits()
	a, b = n.end(x, true), n.end(y, false)
	if n.cfg.Haul {
		d := &depot{has: map[uint64][]byte{}}
		a.AddChannel(func(env lane.Env) lane.Channel { return newDepotHauler(d, env) })
		b.AddChannel(func(env lane.Env) lane.Channel { return newDepotHauler(d, env) })
	}
	a.Start()
	b.Start()
	return a, b
}

func (n *memNet) conduits() (a, b lane.Conduit) {
	if n.cfg.Unix {
		return unixPair()
	}
	return transporttest.Conduits(n.cfg.Chop)
}

func (n *memNet) end(k lane.Conduit, dialler bool) memLink {
	cfg := Config{
		Codec: n.codec, Pieces: NewPieces(), Dialler: dialler, Peer: map[bool]string{true: "listener", false: "dialler"}[dialler],
		Accepts: n.cfg.Streams, Opens: n.cfg.Streams, Inline: math.MaxInt64, Conduit: k, Count: &lane.Traffic{},
		Gone: func(error) {},
	}
	if n.cfg.Haul {
		cfg.Inline = InlineQUIC
	}
	cfg.Explain = func(op string, err error) error {
		return &wire.Error{Op: op, Peer: cfg.Peer, Err: wire.ErrPeerLost, Cause: err}
	}
	return memLink{New(cfg)}
}

// depot is where channels in memory leave their tensors' bytes, by number.
type depot struct {
	mu  sync.Mutex
	has map[uint64][]byte
	n   uint64
}

// depotHauler is the simplest channel: the bytes lie in the depot until the peer says that it has
// them, or does not want them.
type depotHauler struct {
	d   *depot
	env lane.Env

	mu  sync.Mutex
	err error
	out map[uint64]chan error
}

func newDepotHauler(d *depot, env lane.Env) lane.Channel {
	return &depotHauler{d: d, env: env, out: map[uint64]chan error{}}
}

func (h *depotHauler) Lane() string { return wire.LaneBulk }

func (h *depotHauler) Takes(_ []wire.Tensor, n int64) bool { return n > InlineQUIC }

type depotTransfer struct {
	h    *depotHauler
	id   uint64
	done chan error
}

func (h *depotHauler) Begin(ts []wire.Tensor) (lane.Transfer, error) {
	var b []byte
	for _, t := range ts {
		if t.Buf == nil {
			continue
		}
		part := make([]byte, t.Buf.Len())
		if err := t.Buf.Device().Download(part, t.Buf, 0); err != nil {
			return nil, err
		}
		b = append(b, part...)
	}
	h.d.mu.Lock()
	h.d.n++
	t := &depotTransfer{h: h, id: h.d.n, done: make(chan error, 1)}
	h.d.has[t.id] = b
	h.d.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out[t.id] = t.done
	return t, h.err
}

func (t *depotTransfer) Ticket() []byte { return binary.LittleEndian.AppendUint64(nil, t.id) }

func (t *depotTransfer) Deliver(c context.Context) error {
	defer t.Abandon()
	select {
	case err := <-t.done:
		return err
	case <-c.Done():
		return context.Cause(c)
	}
}

func (t *depotTransfer) Abandon() {
	t.h.mu.Lock()
	delete(t.h.out, t.id)
	t.h.mu.Unlock()
	t.h.d.mu.Lock()
	defer t.h.d.mu.Unlock()
	delete(t.h.d.has, t.id)
}

type onceReader struct{ b []byte }

func (r *onceReader) Read(b []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.b)
	r.b = r.b[n:]
	return n, nil
}

func (h *depotHauler) Fetch(_ context.Context, ticket []byte, ts []wire.Tensor, place wire.Place) error {
	id := binary.LittleEndian.Uint64(ticket)
	h.d.mu.Lock()
	b, ok := h.d.has[id]
	h.d.mu.Unlock()
	if !ok {
		return errors.New("the ticket is void")
	}
	if err := wire.ReadPayload(&onceReader{b}, ts, place); err != nil {

		for i := range ts {
			if ts[i].Buf != nil {
				_ = ts[i].Buf.Release()
				ts[i].Buf = nil
			}
		}

		h.Refuse(ticket)
		return err
	}
	return h.env.Say(append([]byte{1}, ticket...))
}

func (h *depotHauler) Refuse(ticket []byte) { _ = h.env.Say(append([]byte{0}, ticket...)) }

func (h *depotHauler) Control(b []byte) error {
	if len(b) != 9 {
		return wire.FrameErr("word", "9 bytes", "%d", len(b))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if done := h.out[binary.LittleEndian.Uint64(b[1:])]; done != nil {
		var err error
		if b[0] == 0 {
			err = &wire.Error{Op: "send to", Err: wire.ErrReset}
		}
		select {
		case done <- err:
		default:
		}
	}
	return nil
}

func (h *depotHauler) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	for _, done := range h.out {
		select {
		case done <- err:
		default:
		}
	}
}
