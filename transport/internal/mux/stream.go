package mux

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// stream is one end of a stream of a session.
type stream struct {
	link   *Session
	theirs bool // the peer opened it

	// guarded by link.out.mu
	number uint64
	known  bool // a chunk of it is on its way, so that it has a number
	dead   bool // nothing more may be sent

	heavy    atomic.Bool   // large tensors go with its messages, or did
	in       pieceReader   // the receiver's
	readable chan struct{} // a token: look again, for the receiver; made when it waits
	writable chan struct{} // likewise for the sender

	mu      sync.Mutex
	first   *piece // arrived, not received
	last    *piece
	queued  atomic.Int64 // what first to last cost; may be read by anybody
	unsaid  int64        // what was received and not credited
	credit  int64        // what the peer will take
	sent    bool         // CloseSend was called
	read    bool         // Recv gave io.EOF, or will
	aborted error        // what Send and Recv give once Reset was called
	cutoff  error        // the peer's Reset took what this end would receive
	stopped error        // the peer's Reset refuses what this end sends
	settled bool         // this end has done its part
	ended   error        // the context's cause
	ctx     context.Context
	cancel  context.CancelCauseFunc
	fetches context.CancelCauseFunc // ends a fetch that is under way
	gives   context.CancelCauseFunc // ends a delivery that is under way
}

func newStream(l *Session) *stream {
	return &stream{link: l, credit: window}
}

func (s *stream) errorf(op string, sentinel error, reason string, cause error) error {
	return &wire.Error{Op: op, Peer: s.link.Peer, Err: sentinel, Reason: reason, Cause: cause}
}

// mayRecvLocked says why nothing more can be received.
func (s *stream) mayRecvLocked() error {
	switch {
	case s.aborted != nil:
		return s.aborted
	case s.cutoff != nil:
		return s.cutoff
	}
	return s.link.Err()
}

// maySendLocked says why nothing can be sent.
func (s *stream) maySendLocked() error {
	switch {
	case s.aborted != nil:
		return s.aborted
	case s.link.Err() != nil:
		return s.link.Err()
	case s.stopped != nil:
		return s.stopped
	case s.sent:
		return s.errorf("send to", wire.ErrClosed, "after the end", nil)
	}
	return nil
}

// tally counts a message, or a part of one; beside says that a lane carries tensors for it. Those
// of streams with such tensors are no calls that somebody waits for while tensors flow.
func (s *stream) tally(beside bool) {
	switch calls := s.link.Calls; {
	case beside:
		s.heavy.Store(true)
	case calls != nil && !s.heavy.Load():
		calls.Add(1)
	}
}

func (s *stream) maySend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maySendLocked()
}

func (s *stream) CloseSend() error {
	s.mu.Lock()
	if s.sent && s.aborted == nil && s.link.Err() == nil {
		s.mu.Unlock()
		return nil
	}
	if err := s.maySendLocked(); err != nil {
		s.mu.Unlock()
		return err
	}
	s.mu.Unlock()
	if err := s.signal(chunk{kind: chunkEnd}); err != nil {
		return s.sendError(context.Background(), err) // lastWords bounds it
	}
	s.finish(true, false)
	return nil
}

// signal sends a chunk without waiting, in order with the stream's messages.
func (s *stream) signal(h chunk) error {
	o := &s.link.out
	o.mu.Lock()
	if o.err != nil || s.dead {
		err := o.err
		o.mu.Unlock()
		return err
	}
	s.knowLocked()
	h.number = s.number
	o.addLocked(h, nil)
	o.kickLocked(false)
	return nil
}

// knowLocked gives the stream its number with its first chunk. The outbox's lock is held.
func (s *stream) knowLocked() {
	if s.known {
		return
	}
	l := s.link
	s.known = true
	s.number = l.number << 1
	if l.Dialler {
		s.number |= 1
	}
	l.number++
	l.mu.Lock()
	if !l.over {
		l.streams[s.number] = s
	}
	l.mu.Unlock()
}

// finish notes that a direction has ended in good order.
func (s *stream) finish(sent, read bool) {
	s.mu.Lock()
	s.sent, s.read = s.sent || sent, s.read || read
	settles := s.sent && s.read && !s.settled
	if settles {
		s.settled = true
		s.endLocked(wire.ErrFinished)
	}
	s.mu.Unlock()
	if settles {
		s.link.forget(s.number, s.theirs)
	}
}

func (s *stream) Reset(reason error) {
	s.mu.Lock()
	if s.aborted != nil || s.sent && s.read {
		s.mu.Unlock()
		return
	}
	s.aborted = s.errorf("stream with", wire.ErrReset, "by this side", reason)
	var flags byte
	if !s.read && s.cutoff == nil {
		flags |= flagStop
	}
	if (!s.sent || reason != nil) && s.stopped == nil {
		flags |= flagAbort
	}
	s.settled = true
	s.endLocked(s.aborted)
	s.interruptLocked(s.aborted, s.aborted)
	dropped := s.takeAllLocked()
	s.mu.Unlock()

	s.link.discardAll(dropped)
	o := &s.link.out
	o.mu.Lock()
	s.dead = true
	known := s.known
	if known && flags != 0 && o.err == nil {
		o.addLocked(chunk{kind: chunkReset, flags: flags, number: s.number}, wire.AppendReason(nil, wire.ReasonOf(reason)))
		o.kickLocked(false)
	} else {
		o.mu.Unlock()
	}
	if known {
		s.link.forget(s.number, s.theirs)
	} else {
		s.link.unopened()
	}
}

// takeAllLocked takes what has arrived.
func (s *stream) takeAllLocked() *piece {
	p := s.first
	s.first, s.last = nil, nil
	s.queued.Store(0)
	return p
}

func (l *Session) discardAll(p *piece) {
	for p != nil {
		next := p.next
		l.discard(p)
		p = next
	}
}

// interruptLocked wakes the receiver and the sender, and ends with these errors what their channels
// do.
func (s *stream) interruptLocked(fetches, gives error) {
	if s.fetches != nil && fetches != nil {
		s.fetches(fetches)
	}
	if s.gives != nil && gives != nil {
		s.gives(gives)
	}
	lane.Wake(s.readable)
	lane.Wake(s.writable)
}

// Context is made on demand: most streams are used by callers, who have a context of their own.
func (s *stream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithCancelCause(s.link.ctx)
		if s.ended != nil {
			s.cancel(s.ended)
		}
	}
	return s.ctx
}

func (s *stream) endLocked(cause error) {
	if s.ended != nil {
		return
	}
	s.ended = cause
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// resetByPeer takes the peer's Reset.
func (s *stream) resetByPeer(stop, abort bool, why *wire.Reason) {
	var cause error
	if why != nil {
		cause = why
	}
	reset := s.errorf("stream with", wire.ErrReset, "by the peer", cause)
	s.mu.Lock()
	var dropped *piece
	var fetches, gives error
	if stop && !s.sent && s.stopped == nil {
		s.stopped, gives = reset, reset
		s.endLocked(reset)
	}
	if abort && !s.read && s.cutoff == nil {
		s.cutoff, fetches = reset, reset
		dropped = s.takeAllLocked()
		s.endLocked(reset)
	}
	s.interruptLocked(fetches, gives)
	s.mu.Unlock()
	s.link.discardAll(dropped)
}

// arrive queues a piece, unless nobody will receive it.
func (s *stream) arrive(p *piece) (taken bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted != nil || s.cutoff != nil || s.settled {
		return false, nil
	}
	if n := s.queued.Add(cost(len(p.b))) + s.unsaid; n > window+pieceCost { // an end is free
		return false, wire.FrameErr("stream", "no more bytes than were allowed", "%d of %d", n, window)
	}
	if s.last == nil {
		s.first = p
	} else {
		s.last.next = p
	}
	s.last = p
	lane.Wake(s.readable)
	return true, nil
}

// peek says of which kind the first message is, where all of it has arrived, without tensors.
func (s *stream) peek() (kind uint8, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.first
	if p == nil || p.kind != chunkMessage || p.flags&(flagMore|flagExternal) != 0 {
		return 0, false
	}
	return wire.KindAlone(p.b)
}

// next waits for a piece.
func (s *stream) next(c context.Context) (*piece, error) {
	for {
		s.mu.Lock()
		if p := s.first; p != nil {
			if s.first = p.next; s.first == nil {
				s.last = nil
			}
			p.next = nil
			s.queued.Add(-cost(len(p.b)))
			s.unsaid += cost(len(p.b))
			say := s.unsaid
			if say < window/2 {
				say = 0
			}
			s.unsaid -= say
			s.mu.Unlock()
			if say > 0 {
				_ = s.link.out.control(chunk{kind: chunkCredit, number: s.number}, binary.LittleEndian.AppendUint32(nil, uint32(say)))
			}
			return p, nil
		}
		err := s.mayRecvLocked()
		if s.readable == nil {
			s.readable = make(chan struct{}, 1)
		}
		again := s.readable
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-again:
		case <-s.link.ctx.Done():
		case <-c.Done():
			return nil, s.errorf("receive from", c.Err(), "", nil)
		}
	}
}

func (s *stream) Recv(c context.Context, place wire.Place) (*wire.Message, error) {
	if err := c.Err(); err != nil {
		return nil, s.errorf("receive from", err, "", nil)
	}
	s.mu.Lock()
	read := s.read
	s.mu.Unlock()
	if read {
		return nil, io.EOF
	}
	p, err := s.next(c)
	if err != nil {
		return nil, err
	}
	if p.kind == chunkEnd {
		s.link.free(p)
		s.finish(false, true)
		return nil, io.EOF
	}
	m, err := s.decode(c, p, place)
	s.in.drop()
	if err != nil {
		if errors.Is(err, wire.ErrFrame) {
			s.Reset(err) // the peer breaks the rules: nothing that follows makes sense
		}
		return nil, err
	}
	if m.End {
		s.finish(false, true)
	}
	return m, nil
}
