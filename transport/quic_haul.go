package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
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

// accept takes the peer's one-way streams.
func (h *quicHauler) accept() {
	for {
		s, err := h.conn.AcceptUniStream(context.Background())
		if err != nil {
			return // the link is gone
		}
		go h.arrive(s)
	}
}

// arrive reads a stream's ticket, and gives it to who waits for it or will.
func (h *quicHauler) arrive(s *quic.ReceiveStream) {
	var b [8]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		s.CancelRead(resetCode)
		return
	}
	id := binary.LittleEndian.Uint64(b[:])
	h.mu.Lock()
	defer h.mu.Unlock()
	want := h.wanted[id]
	switch {
	case want != nil:
		delete(h.wanted, id)
		want <- s // it has room for the one
	case h.err != nil || h.refused.cut(id) || h.arrived[id] != nil || len(h.arrived) >= haulStreams:
		s.CancelRead(resetCode)
	default:
		h.arrived[id] = s
	}
}

// ticketNumber reads a ticket.
func ticketNumber(ticket []byte) (uint64, error) {
	if len(ticket) != 8 {
		return 0, frameErr("ticket", "8 bytes", "%d", len(ticket))
	}
	return binary.LittleEndian.Uint64(ticket), nil
}

func (h *quicHauler) fetch(c context.Context, ticket []byte, ts []Tensor, place Place) error {
	id, err := ticketNumber(ticket)
	if err != nil {
		return err
	}
	s, err := h.stream(c, id)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(c, func() { s.CancelRead(resetCode) })
	err = readPayload(s, ts, place)
	if err == nil {
		err = atEnd(s)
	}
	if stop() && err == nil {
		for i := range ts {
			if ts[i].Buf != nil {
				h.env.count.received.Add(uint64(ts[i].Buf.Len()))
			}
		}
		return nil
	}
	s.CancelRead(resetCode)
	m := Message{Tensors: ts}
	m.Release()
	for i := range ts {
		ts[i].Buf = nil
	}
	var reset *quic.StreamError
	switch {
	case c.Err() != nil:
		return context.Cause(c)
	case errors.As(err, &reset):
		return &Error{Op: "receive from", Peer: h.conn.RemoteAddr().String(), Err: ErrReset, Reason: "by the peer"}
	}
	h.tell(haulRefuse, id)
	return err
}

// atEnd checks that nothing follows.
func atEnd(r io.Reader) error {
	var b [1]byte
	switch _, err := io.ReadFull(r, b[:]); {
	case err == io.EOF:
		return nil
	case err != nil:
		return err
	}
	return frameErr("payload", "its end", "more")
}

// stream gives the stream of a ticket, when it comes.
func (h *quicHauler) stream(c context.Context, id uint64) (*quic.ReceiveStream, error) {
	h.mu.Lock()
	if h.err != nil {
		defer h.mu.Unlock()
		return nil, h.err
	}
	if h.wanted[id] != nil {
		h.mu.Unlock()
		return nil, frameErr("ticket", "a new one", "%d again", id)
	}
	s := h.arrived[id]
	delete(h.arrived, id)
	var want chan *quic.ReceiveStream
	if s == nil {
		want = make(chan *quic.ReceiveStream, 1)
		h.wanted[id] = want
	}
	h.mu.Unlock()
	h.tell(haulAsk, id)
	if s != nil {
		return s, nil
	}
	select {
	case s := <-want:
		if s == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			return nil, h.err
		}
		return s, nil
	case <-c.Done():
		h.refuse(binary.LittleEndian.AppendUint64(nil, id))
		select {
		case s := <-want: // it came at the last moment
			if s != nil {
				s.CancelRead(resetCode)
			}
		default:
		}
		return nil, context.Cause(c)
	}
}

func (h *quicHauler) refuse(ticket []byte) {
	id, err := ticketNumber(ticket)
	if err != nil {
		return
	}
	h.mu.Lock()
	s := h.arrived[id]
	delete(h.wanted, id)
	delete(h.arrived, id)
	if s == nil {
		h.refused.add(id)
	}
	h.mu.Unlock()
	if s != nil {
		s.CancelRead(resetCode)
	}
	h.tell(haulRefuse, id)
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

// refusedTickets remembers the last tickets that were refused before their stream had come.
type refusedTickets struct {
	has  map[uint64]bool
	ring []uint64
	next int
}

func (r *refusedTickets) add(id uint64) {
	if r.has[id] {
		return
	}
	r.has[id] = true
	if len(r.ring) < refusedCount {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.has, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % refusedCount
}

// cut says whether a ticket was refused, and forgets it.
func (r *refusedTickets) cut(id uint64) bool {
	was := r.has[id]
	delete(r.has, id)
	return was
}
