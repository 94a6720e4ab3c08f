package mux

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

func (s *stream) Send(c context.Context, m *wire.Message) error {
	if err := c.Err(); err != nil {
		return s.errorf("send to", err, "", nil)
	}
	if err := s.maySend(); err != nil {
		return err
	}
	codec := s.link.Codec
	payload, err := codec.CheckMessage(m)
	if err != nil {
		return err
	}
	box := codec.Scratch.Get().(*[]byte)
	defer codec.Keep(box)
	s.tally(payload > s.link.Inline)
	if payload > s.link.Inline {
		err = s.sendBeside(c, box, m, payload)
	} else {
		if *box, err = wire.AppendFrame((*box)[:0], m, payload); err == nil {
			err = s.sendPieces(c, *box, chunk{kind: chunkMessage})
		}
	}
	if err != nil {
		return s.sendError(c, err)
	}
	if m.End {
		s.finish(true, false)
	}
	return nil
}

// sendError puts this package's words in the place of a context's error.
func (s *stream) sendError(c context.Context, err error) error {
	if wire.IsUnreadable(err) {
		return err // the peer may have given up, but of that
	}
	if s.link.out.hungUp() {
		select {
		case <-s.link.ctx.Done(): // the reader is about to see it, and knows more
		case <-c.Done():
		}
	}
	s.mu.Lock()
	why := s.maySendLocked()
	s.mu.Unlock()
	if why != nil {
		return why
	}
	if wire.IsContextEnd(err) {
		return s.errorf("send to", err, "", nil)
	}
	return err
}

// sendBeside sends a message whose tensors go by a channel.
func (s *stream) sendBeside(c context.Context, box *[]byte, m *wire.Message, payload int64) error {
	t, code, err := s.link.chooseChannel(m.Tensors, payload)
	if err != nil {
		return err
	}
	ticket := t.Ticket()
	b := appendTicket((*box)[:0], ticket)
	*box = wire.AppendHead(b, m, payload)
	if err := s.sendPieces(c, *box, chunk{kind: chunkMessage, flags: flagExternal, lane: code}); err != nil {
		t.Abandon()
		return err
	}
	c, done, err := s.interruptible(c, &s.gives, s.maySendLocked)
	if err != nil {
		t.Abandon()
		return err
	}
	defer done()
	return t.Deliver(c)
}

// chooseChannel finds a channel for tensors.
func (l *Session) chooseChannel(ts []wire.Tensor, payload int64) (lane.Transfer, byte, error) {
	t, code, err := l.beginBut(nil, ts, payload)
	if err == nil && code != wire.LaneCode(wire.LaneCUDA) && slices.ContainsFunc(ts, lane.Between) {
		l.passed.Add(1)
	}
	return t, code, err
}

// beginBut is begin without one of the channels.
func (l *Session) beginBut(but lane.Channel, ts []wire.Tensor, payload int64) (lane.Transfer, byte, error) {
	var errs []error
	for _, h := range l.channels {
		if h == but || !h.Takes(ts, payload) {
			continue
		}
		t, err := h.Begin(ts)
		if err == nil {
			return t, wire.LaneCode(h.Lane()), nil
		}
		if wire.IsUnreadable(err) {
			return nil, 0, err // by any lane
		}
		errs = append(errs, err)
	}
	if errs == nil {
		return nil, 0, fmt.Errorf("transport: no lane takes %d bytes of tensors", payload)
	}
	return nil, 0, errors.Join(errs...)
}

// interruptible gives a context that ends with c, with the link, and when the stream's direction is
// cut: that calls what it puts at slot. may says why it is cut already.
func (s *stream) interruptible(c context.Context, slot *context.CancelCauseFunc, may func() error) (context.Context, func(), error) {
	c, cancel := context.WithCancelCause(c)
	s.mu.Lock()
	if err := may(); err != nil {
		s.mu.Unlock()
		cancel(err)
		return nil, nil, err
	}
	*slot = cancel
	s.mu.Unlock()
	stop := context.AfterFunc(s.link.ctx, func() { cancel(s.link.Err()) })
	return c, func() {
		stop()
		s.mu.Lock()
		*slot = nil
		s.mu.Unlock()
		cancel(nil)
	}, nil
}

// sendPieces sends a message's bytes, in as many chunks as they need.
func (s *stream) sendPieces(c context.Context, b []byte, h chunk) error {
	for {
		n := min(len(b), pieceMax)
		more := n < len(b)
		if more {
			h.flags |= flagMore
		} else {
			h.flags &^= flagMore
		}
		if err := s.sendPiece(c, h, b[:n]); err != nil {
			return err
		}
		if !more {
			return nil
		}
		h.flags &^= flagExternal
		h.lane, b = 0, b[n:]
	}
}

// sendPiece waits for the peer's credit, and for room to put the chunk.
func (s *stream) sendPiece(c context.Context, h chunk, b []byte) error {
	if err := s.spend(c, cost(len(b))); err != nil {
		return err
	}
	o := &s.link.out
	crowded := s.link.crowded()
	if err := o.lock(c, s); err != nil {
		return err
	}
	if s.dead {
		o.mu.Unlock()
		return wire.ErrReset // the caller finds the words
	}
	s.knowLocked()
	h.number = s.number
	o.addLocked(h, b)
	o.kickLocked(crowded)
	return nil
}

// spend waits until the peer takes that many bytes more.
func (s *stream) spend(c context.Context, n int64) error {
	for {
		s.mu.Lock()
		if err := s.maySendLocked(); err != nil {
			s.mu.Unlock()
			return err
		}
		if s.credit >= n {
			s.credit -= n
			s.mu.Unlock()
			return nil
		}
		ch := s.sendWakeLocked()
		s.mu.Unlock()
		select {
		case <-ch:
		case <-s.link.ctx.Done():
		case <-c.Done():
			return c.Err()
		}
	}
}

// sendWakeLocked gives the sender what tells it to look again.
func (s *stream) sendWakeLocked() <-chan struct{} {
	if s.writable == nil {
		s.writable = make(chan struct{}, 1)
	}
	return s.writable
}

// credited takes the peer's credit.
func (s *stream) credited(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.credit += n; s.credit > window {
		return wire.FrameErr("credit", "no more than was spent", "%d bytes too many", s.credit-window)
	}
	lane.Wake(s.writable)
	return nil
}

// decode reads the message that begins with p, and fetches what did not come with it.
func (s *stream) decode(c context.Context, p *piece, place wire.Place) (*wire.Message, error) {
	s.in = pieceReader{s: s, c: c, p: p, left: p.b}
	code := p.lane
	if p.flags&flagExternal == 0 {
		return s.decodeFrame(place)
	}
	h := s.link.Channel(code)
	if h == nil {
		return nil, wire.FrameErr("ticket", "a lane of this link", "%d", code)
	}
	t, rest, err := cutTicket(p.b)
	if err != nil {
		return nil, err
	}
	ticket := append([]byte(nil), t...)
	s.in.left = rest
	m, payload, err := s.link.Codec.DecodeHead(&s.in)
	if err == nil && !s.in.whole() {
		err = wire.FrameErr("message", "one frame without a payload", "more")
	}
	if err != nil {
		h.Refuse(ticket)
		return nil, err
	}
	if err := s.fetch(c, h, ticket, m.Tensors, payload, place); err != nil {
		return nil, err
	}
	return m, nil
}

// decodeFrame reads a message that came as a whole.
func (s *stream) decodeFrame(place wire.Place) (*wire.Message, error) {
	m, payload, err := s.link.Codec.DecodeHead(&s.in)
	if err != nil {
		return nil, wire.CutShort(err, "fixed part")
	}
	if payload > s.link.Inline {
		return nil, wire.FrameErr("payload", fmt.Sprintf("at most %d bytes in the frame", s.link.Inline), "%d", payload)
	}
	err = wire.ReadPayload(&s.in, m.Tensors, place)
	if err == nil && !s.in.whole() {
		err = wire.FrameErr("message", "one frame", "more")
	}
	if err != nil {
		m.Release()
		return nil, err
	}
	return m, nil
}

// fetch gets the tensors of a message by its channel.
func (s *stream) fetch(c context.Context, h lane.Channel, ticket []byte, ts []wire.Tensor, payload int64, place wire.Place) error {
	outer := c
	c, done, err := s.interruptible(c, &s.fetches, s.mayRecvLocked)
	if err == nil {
		defer done()
		if err = s.link.budget.take(c, payload); err == nil {
			defer s.link.budget.give(payload)
			if err = h.Fetch(c, ticket, ts, place); err == nil {
				return nil
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.fetchErrorLocked(outer, err)
		}
	}
	h.Refuse(ticket)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetchErrorLocked(outer, err)
}

// fetchErrorLocked prefers what was done to the stream and its caller over what the channel saw of
// it.
func (s *stream) fetchErrorLocked(c context.Context, err error) error {
	if why := s.mayRecvLocked(); why != nil {
		return why
	}
	if c.Err() != nil {
		return s.errorf("receive from", c.Err(), "", nil)
	}
	return err
}

// crowded says whether many streams are in use, so that it pays to wait for what others send.
func (l *Session) crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.streams) > crowd
}
