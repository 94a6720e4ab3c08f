package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/quic-go/quic-go"
)

const (
	haulStreams  = 256     // one-way streams that a peer may have open at a time
	eagerBytes   = 4 << 20 // tensors on their way that the peer has not asked for
	eagerCount   = 32
	refusedCount = 4096 // tickets that were refused and may still come

	haulAsk    = 1 // words: one of these and the ticket
	haulRefuse = 2

	resetCode = 1

	frameUrgency = 0 // the kept stream goes before what is hauled
	haulUrgency  = 5
)

// quicHauler moves large tensors over one-way streams of the link's QUIC connection, one for each message: the ticket, and the
// tensors' bytes. A ticket is a number. The receiver says when it fetches; a few tensors go before, to save a round trip: so few that
// they cannot fill the connection's window when nobody fetches them.
type quicHauler struct {
	env  laneEnv
	conn *quic.Conn

	mu      sync.Mutex
	err     error
	last    uint64
	out     map[uint64]*quicTransfer
	bytes   int64 // of eager transfers
	count   int   // of eager transfers
	wanted  map[uint64]chan *quic.ReceiveStream
	arrived map[uint64]*quic.ReceiveStream
	refused refusedTickets
}

func newQUICHauler(conn *quic.Conn, env laneEnv) *quicHauler {
	h := &quicHauler{
		env: env, conn: conn, out: map[uint64]*quicTransfer{},
		wanted: map[uint64]chan *quic.ReceiveStream{}, arrived: map[uint64]*quic.ReceiveStream{}, refused: refusedTickets{has: map[uint64]bool{}},
	}
	go h.accept()
	return h
}

func (h *quicHauler) lane() string { return LaneQUIC }

func (h *quicHauler) takes([]Tensor, int64) bool { return true }

// quicTransfer is a message's tensors on their way. Its fields but asked are guarded by the hauler's mu.
type quicTransfer struct {
	h       *quicHauler
	id      uint64
	tensors []Tensor
	bytes   int64
	eager   bool // it counts as such
	over    bool // deliver has ended
	refused bool
	asked   chan struct{}      // closed when the peer has asked or refused
	cancel  context.CancelFunc // of deliver
}

func (h *quicHauler) begin(ts []Tensor) (transfer, error) {
	t := &quicTransfer{h: h, tensors: ts, asked: make(chan struct{})}
	for i := range ts {
		if ts[i].Buf != nil {
			t.bytes += int64(ts[i].Buf.Len())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	h.last++
	t.id = h.last
	h.out[t.id] = t
	if h.bytes+t.bytes <= eagerBytes && h.count < eagerCount {
		t.eager = true
		h.bytes += t.bytes
		h.count++
	}
	return t, nil
}

func (t *quicTransfer) ticket() []byte { return binary.LittleEndian.AppendUint64(nil, t.id) }

// calmLocked takes a transfer off those that the peer did not ask for.
func (t *quicTransfer) calmLocked() {
	if t.eager {
		t.eager = false
		t.h.bytes -= t.bytes
		t.h.count--
	}
}

func (t *quicTransfer) abandon() {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.calmLocked()
	delete(t.h.out, t.id)
}

func (t *quicTransfer) deliver(c context.Context) error {
	h := t.h
	c, cancel := context.WithCancel(c)
	defer cancel()
	h.mu.Lock()
	t.cancel = cancel
	eager := t.eager
	if t.refused {
		cancel()
	}
	h.mu.Unlock()
	err := t.write(c, eager)
	h.mu.Lock()
	defer h.mu.Unlock()
	t.over, t.tensors, t.cancel = true, nil, nil
	if err != nil {
		t.calmLocked()
	}
	if !t.eager { // else it is remembered until the peer has asked
		delete(h.out, t.id)
	}
	var unwanted *quic.StreamError // this may come before the peer's word
	switch {
	case err == nil:
		return nil
	case h.err != nil:
		return h.err
	case !t.refused && !errors.As(err, &unwanted):
		return err
	}
	return &Error{Op: "send to", Peer: h.conn.RemoteAddr().String(), Err: ErrReset, Reason: "the peer does not want the tensors"}
}

// write waits for its turn and writes.
func (t *quicTransfer) write(c context.Context, eager bool) error {
	if !eager {
		select {
		case <-t.asked:
		case <-c.Done():
			return c.Err()
		}
	}
	s, err := t.h.conn.OpenUniStreamSync(c)
	if err != nil {
		return err
	}
	s.SetPriority(haulUrgency, true)
	stop := context.AfterFunc(c, func() { s.CancelWrite(resetCode) })
	defer stop()
	b := t.ticket()
	for i := range t.tensors {
		if b, err = writeTensor(s, b, t.tensors[i].Buf); err != nil {
			break
		}
	}
	if err == nil && len(b) > 0 {
		_, err = s.Write(b)
	}
	if err == nil && stop() {
		t.h.env.count.sent.Add(uint64(t.bytes))
		return s.Close()
	}
	s.CancelWrite(resetCode)
	if c.Err() != nil {
		return c.Err()
	}
	return err
}

func (h *quicHauler) control(b []byte) error {
	if len(b) != 9 || b[0] != haulAsk && b[0] != haulRefuse {
		return frameErr("word", "9 bytes, of which the first is 1 or 2", "%x", b)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.out[binary.LittleEndian.Uint64(b[1:])]
	if t == nil {
		return nil // it is over
	}
	t.calmLocked()
	if b[0] == haulRefuse {
		t.refused = true
		if t.cancel != nil {
			t.cancel()
		}
	}
	select {
	case <-t.asked:
	default:
		close(t.asked)
	}
	if t.over {
		delete(h.out, t.id)
	}
	return nil
}

func (h *quicHauler) tell(what byte, id uint64) {
	_ = h.env.say(binary.LittleEndian.AppendUint64([]byte{what}, id)) // fails only with the link
}

func (h *quicHauler) close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	h.err = err
	for _, t := range h.out {
		if t.cancel != nil {
			t.cancel()
		}
	}
	for _, want := range h.wanted {
		close(want)
	}
	clear(h.wanted)
	clear(h.arrived) // they end with the connection
}
