package quicstream

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/wire"
)

// accept takes the peer's one-way streams of a connection.
func (h *Channel) accept(conn *quic.Conn) {
	for {
		s, err := conn.AcceptUniStream(context.Background())
		if err != nil {
			return // the connection is gone
		}
		go h.arrive(s)
	}
}

// arrive reads a stream's ticket, and gives it to who waits for it or will.
func (h *Channel) arrive(s *quic.ReceiveStream) {
	var b [ticketBytes]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		s.CancelRead(ResetCode)
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
	case h.err != nil || h.refused.Cut(id) || h.arrived[id] != nil || len(h.arrived) >= Streams:
		s.CancelRead(ResetCode)
	default:
		h.arrived[id] = s
	}
}

// ticketNumber reads a ticket.
func ticketNumber(ticket []byte) (uint64, error) {
	if len(ticket) != ticketBytes {
		return 0, wire.FrameErr("ticket", "8 bytes", "%d", len(ticket))
	}
	return binary.LittleEndian.Uint64(ticket), nil
}

// Fetch implements [lane.Channel].
func (h *Channel) Fetch(c context.Context, ticket []byte, ts []wire.Tensor, place wire.Place) error {
	id, err := ticketNumber(ticket)
	if err != nil {
		return err
	}
	s, err := h.stream(c, id)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(c, func() { s.CancelRead(ResetCode) })
	r := &creditReader{h: h, id: id, r: s, read: ticketBytes}
	err = wire.ReadPayload(r, ts, place)
	if err == nil {
		err = atEnd(s)
	}
	if stop() && err == nil {
		for i := range ts {
			if ts[i].Buf != nil {
				h.env.Count.Received.Add(uint64(ts[i].Buf.Len()))
			}
		}
		r.say()
		return nil
	}
	s.CancelRead(ResetCode)
	m := wire.Message{Tensors: ts}
	m.Release()
	for i := range ts {
		ts[i].Buf = nil
	}
	h.sendWord(wordRefuse, id, 0)
	err = h.verdict(c, err)
	var reset *quic.StreamError
	switch {
	case c.Err() != nil:
		return context.Cause(c)
	case errors.As(err, &reset):
		return &wire.Error{Op: "receive from", Peer: h.conn.RemoteAddr().String(), Err: wire.ErrReset, Reason: "by the peer"}
	}
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
	return wire.FrameErr("payload", "its end", "more")
}

// stream gives the stream of a ticket, when it comes.
func (h *Channel) stream(c context.Context, id uint64) (*quic.ReceiveStream, error) {
	h.mu.Lock()
	if h.err != nil {
		defer h.mu.Unlock()
		return nil, h.err
	}
	if h.wanted[id] != nil {
		h.mu.Unlock()
		return nil, wire.FrameErr("ticket", "a new one", "%d again", id)
	}
	h.dialLocked(time.Now())
	s := h.arrived[id]
	delete(h.arrived, id)
	var want chan *quic.ReceiveStream
	if s == nil {
		want = make(chan *quic.ReceiveStream, 1)
		h.wanted[id] = want
	}
	h.mu.Unlock()
	h.sendWord(wordAsk, id, 0)
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
		h.Refuse(binary.LittleEndian.AppendUint64(nil, id))
		select {
		case s := <-want: // it came at the last moment
			if s != nil {
				s.CancelRead(ResetCode)
			}
		default:
		}
		return nil, context.Cause(c)
	}
}

// Refuse implements [lane.Channel].
func (h *Channel) Refuse(ticket []byte) {
	id, err := ticketNumber(ticket)
	if err != nil {
		return
	}
	h.mu.Lock()
	s := h.arrived[id]
	delete(h.wanted, id)
	delete(h.arrived, id)
	if s == nil {
		h.refused.Add(id)
	}
	h.mu.Unlock()
	if s != nil {
		s.CancelRead(ResetCode)
	}
	h.sendWord(wordRefuse, id, 0)
}
