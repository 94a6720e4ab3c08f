package quicstream

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

const (
	eagerCount = 32 // transfers on their way that the peer has not asked for

	// Words: one of these and the ticket.
	wordAsk    = 1
	wordRefuse = 2
	wordRead   = 3 // and how many bytes of its stream have been read, at any time and at its end

	ticketBytes = 8

	urgency = 5
)

// Channel moves large tensors over one-way streams of a QUIC connection, one for each message: the
// ticket, and the tensors' bytes. A ticket is a number. The receiver says when it fetches, and how
// far it has read; a little goes before, to save a round trip: so little that it cannot fill the
// connection's window when nobody fetches it.
type Channel struct {
	env  lane.Env
	conn *quic.Conn    // the link's
	size func() int64  // of the window
	over chan struct{} // closed when err is set

	// Dial makes a connection for tensors alone; nil where the peer does.
	Dial func(context.Context) (*quic.Conn, error)

	mu        sync.Mutex
	err       error
	beside    *quic.Conn // for tensors alone; nil while there is none
	dialAfter time.Time
	last      uint64
	out       map[uint64]*transfer
	bytes     int64 // that eager transfers may write
	count     int   // of eager transfers
	window    sharedWindow
	wanted    map[uint64]chan *quic.ReceiveStream
	arrived   map[uint64]*quic.ReceiveStream
	refused   lane.RefusedTickets
}

// New makes the channel of a link, over its connection.
func New(conn *quic.Conn, env lane.Env) *Channel {
	h := &Channel{
		env: env, conn: conn, over: make(chan struct{}), out: map[uint64]*transfer{},
		wanted: map[uint64]chan *quic.ReceiveStream{}, arrived: map[uint64]*quic.ReceiveStream{}, refused: lane.NewRefusedTickets(),
	}
	h.size = sizeOf(func() time.Duration { return conn.ConnectionStats().MinRTT }, env)
	go h.accept(conn)
	return h
}

// Lane implements [lane.Channel].
func (h *Channel) Lane() string { return wire.LaneQUIC }

// Takes implements [lane.Channel].
func (h *Channel) Takes([]wire.Tensor, int64) bool { return true }

// transfer is a message's tensors on their way. Of its fields those from eager to read, and cancel,
// are guarded by the channel's mu.
type transfer struct {
	h       *Channel
	id      uint64
	tensors []wire.Tensor
	bytes   int64 // of its stream

	eager   bool  // it counts as such
	early   int64 // how many bytes may be written before it is asked for
	wanted  bool  // it was asked for
	over    bool  // deliver has ended well
	refused bool
	wants   int64              // how many bytes it waits to write
	written int64              // or about to be
	read    int64              // by the peer
	cancel  context.CancelFunc // of deliver

	asked   chan struct{} // closed when the peer has asked
	turn    chan struct{} // a token: granted is set
	granted int64
}

// Begin implements [lane.Channel].
func (h *Channel) Begin(ts []wire.Tensor) (lane.Transfer, error) {
	t := &transfer{h: h, tensors: ts, bytes: ticketBytes, asked: make(chan struct{}), turn: make(chan struct{}, 1)}
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
	h.dialLocked(time.Now())
	h.last++
	t.id = h.last
	h.out[t.id] = t
	if room := eagerFor(h.size()) - h.bytes; room >= min(t.bytes, grantLeast) && h.count < eagerCount {
		t.eager, t.early = true, min(t.bytes, room)
		h.bytes += t.early
		h.count++
	}
	return t, nil
}

func (t *transfer) Ticket() []byte { return binary.LittleEndian.AppendUint64(nil, t.id) }

// calmLocked takes a transfer off those that the peer did not ask for.
func (t *transfer) calmLocked() {
	if t.eager {
		t.eager = false
		t.h.bytes -= t.early
		t.h.count--
	}
}

func (t *transfer) Abandon() {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.leaveLocked()
}

func (t *transfer) Deliver(c context.Context) error {
	h := t.h
	c, cancel := context.WithCancel(c)
	defer cancel()
	h.mu.Lock()
	t.cancel = cancel
	if t.refused {
		cancel()
	}
	h.mu.Unlock()
	err := h.verdict(c, t.send(c))
	h.mu.Lock()
	defer h.mu.Unlock()
	t.over, t.tensors, t.cancel = true, nil, nil
	if err != nil || t.refused || t.read == t.bytes { // else it is remembered until the peer has read it
		t.leaveLocked()
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
	return &wire.Error{Op: "send to", Peer: h.conn.RemoteAddr().String(), Err: wire.ErrReset, Reason: "the peer does not want the tensors"}
}

// send waits for its turn and writes.
func (t *transfer) send(c context.Context) error {
	if t.early == 0 {
		select {
		case <-t.asked:
		case <-c.Done():
			return c.Err()
		}
	}
	s, err := t.h.route().OpenUniStreamSync(c)
	if err != nil {
		return err
	}
	s.SetPriority(urgency, true)
	stop := context.AfterFunc(c, func() { s.CancelWrite(ResetCode) })
	defer stop()
	w := pacedWriter{t, c, s}
	b := t.Ticket()
	for i := range t.tensors {
		if b, err = wire.WriteTensor(w, b, t.tensors[i].Buf); err != nil {
			break
		}
	}
	if err == nil && len(b) > 0 {
		_, err = w.Write(b)
	}
	if err == nil && stop() {
		t.h.env.Count.Sent.Add(uint64(t.bytes - ticketBytes))
		return s.Close()
	}
	s.CancelWrite(ResetCode)
	if c.Err() != nil {
		return c.Err()
	}
	return err
}

// Control implements [lane.Channel].
func (h *Channel) Control(b []byte) error {
	if len(b) != 17 || b[0] < wordAsk || b[0] > wordRead {
		return wire.FrameErr("word", "17 bytes, of which the first is 1 to 3", "%x", b)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.out[binary.LittleEndian.Uint64(b[1:])]
	if t == nil {
		return nil // it is over
	}
	switch b[0] {
	case wordAsk:
		t.wantLocked()
	case wordRead:
		if err := t.readLocked(binary.LittleEndian.Uint64(b[9:])); err != nil {
			return err
		}
	case wordRefuse:
		t.refused = true
		if t.cancel != nil {
			t.cancel()
		}
	}
	if t.over && (t.refused || t.read == t.bytes) {
		t.leaveLocked()
	}
	return nil
}

// sendWord says a word of the transfer with that ticket. It fails only with the link.
func (h *Channel) sendWord(what byte, id, n uint64) {
	b := binary.LittleEndian.AppendUint64([]byte{what}, id)
	_ = h.env.Say(binary.LittleEndian.AppendUint64(b, n))
}

// Close implements [lane.Channel].
func (h *Channel) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	h.err = err
	close(h.over)
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
