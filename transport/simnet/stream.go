package simnet

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/weft-project/weft/transport"
)

// stream is one end of a stream.
type stream struct {
	end    *end
	name   string // the same at both ends
	peer   *stream
	ctx    context.Context
	cancel context.CancelCauseFunc

	// guarded by Net.mu
	out     pipe     // to the peer
	in      []packet // arrived, not received
	sent    bool     // CloseSend was called
	read    bool     // Recv gave io.EOF
	aborted error    // Reset was called
	cutoff  error    // the peer's Reset took what this end would receive
	stopped error    // the peer's Reset refuses what this end sends
	mine    bool     // opened by this end
	known   bool     // the peer's stream has been announced here
	settled bool     // this end has done its part
	bell    bell     // for Recv
}

func newStream(e *end, name string) *stream {
	s := &stream{end: e, name: name}
	s.out.from = s
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

func (s *stream) Context() context.Context { return s.ctx }

// mayLocked says why nothing can be sent.
func (s *stream) mayLocked() error {
	switch {
	case s.aborted != nil:
		return s.aborted
	case s.end.err != nil:
		return s.end.err
	case s.stopped != nil:
		return s.stopped
	case s.sent:
		return s.errorf(transport.ErrClosed, "after CloseSend")
	}
	return nil
}

func (s *stream) errorf(sentinel error, reason string) error {
	return &transport.Error{Op: "stream with", Peer: s.end.addr, Err: sentinel, Reason: reason}
}

func (s *stream) Send(c context.Context, m *transport.Message) error {
	n := s.end.net
	if err := c.Err(); err != nil {
		return &transport.Error{Op: "send to", Peer: s.end.addr, Err: err}
	}
	var b bytes.Buffer
	if err := n.codec.Encode(&b, m); err != nil {
		return err
	}
	drop := n.cfg.Drop != nil && n.cfg.Drop(s.end.host, s.end.peer, m)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := s.mayLocked(); err != nil {
		return err
	}
	s.out.stalled = s.out.stalled || drop
	s.out.postLocked(packet{frame: b.Bytes(), fin: m.End})
	if m.End {
		s.sent = true
		s.settleLocked()
	}
	return nil
}

func (s *stream) CloseSend() error {
	s.end.net.mu.Lock()
	defer s.end.net.mu.Unlock()
	if s.sent && s.aborted == nil && s.end.err == nil {
		return nil
	}
	if err := s.mayLocked(); err != nil {
		return err
	}
	s.sent = true
	s.out.postLocked(packet{fin: true})
	s.settleLocked()
	return nil
}

func (s *stream) Recv(c context.Context, place transport.Place) (*transport.Message, error) {
	p, err := s.next(c)
	if err != nil {
		return nil, err
	}
	m, err := s.end.net.codec.Decode(bytes.NewReader(p.frame), place)
	if errors.Is(err, transport.ErrFrame) {
		s.Reset(err)
	}
	return m, err
}

// next waits for a message.
func (s *stream) next(c context.Context) (packet, error) {
	if err := c.Err(); err != nil {
		return packet{}, &transport.Error{Op: "receive from", Peer: s.end.addr, Err: err}
	}
	for {
		p, change, err := s.tryNext()
		if change == nil {
			return p, err
		}
		select {
		case <-change:
		case <-c.Done():
			return packet{}, &transport.Error{Op: "receive from", Peer: s.end.addr, Err: c.Err()}
		}
	}
}

// tryNext gives a message, or an error, or what to wait for.
func (s *stream) tryNext() (p packet, change <-chan struct{}, err error) {
	s.end.net.mu.Lock()
	defer s.end.net.mu.Unlock()
	switch {
	case s.read:
		return p, nil, io.EOF
	case s.aborted != nil:
		return p, nil, s.aborted
	case s.end.err != nil:
		return p, nil, s.end.err
	case s.cutoff != nil:
		return p, nil, s.cutoff
	case len(s.in) == 0:
		return p, s.bell.wait(), nil
	}
	p = s.in[0]
	s.in = s.in[1:]
	if p.fin {
		s.read = true
		s.settleLocked()
	}
	if p.frame == nil {
		return p, nil, io.EOF
	}
	return p, nil, nil
}

func (s *stream) Reset(reason error) {
	s.end.net.mu.Lock()
	defer s.end.net.mu.Unlock()
	if s.aborted != nil || s.sent && s.read {
		return
	}
	s.aborted = &transport.Error{Op: "stream with", Peer: s.end.addr, Err: transport.ErrReset, Reason: "by this side", Cause: reason}
	k := packet{stop: !s.read, abort: !s.sent || reason != nil}
	if r := transport.ReasonOf(reason); r != nil {
		k.why = r
	}
	s.out.postLocked(k)
	s.endLocked(s.aborted)
	s.bell.ring()
	s.settleLocked()
}

// settleLocked notes when this end has done its part.
func (s *stream) settleLocked() {
	if !(s.sent && s.read) && s.aborted == nil {
		return
	}
	s.settled = true
	s.endLocked(transport.ErrFinished)
	s.forgetLocked()
	if opener := s.peer.end; !s.mine && s.end.err == nil {
		opener.active-- // the peer may open another one
		opener.bell.ring()
	}
}

// forgetLocked drops a stream that has done its part and has nothing under way.
func (s *stream) forgetLocked() {
	if s.settled && len(s.out.flight) == 0 {
		delete(s.end.streams, s)
	}
}

// endLocked ends the stream's context; the first cause counts.
func (s *stream) endLocked(cause error) { s.cancel(cause) }

// arriveLocked takes what the peer sent.
func (s *stream) arriveLocked(p packet) {
	if !s.known {
		s.known = true
		s.end.streams[s] = struct{}{}
		s.end.arrived = append(s.end.arrived, s)
		s.end.bell.ring()
	}
	reset := &transport.Error{Op: "stream with", Peer: s.end.addr, Err: transport.ErrReset, Reason: "by the peer", Cause: p.why}
	if p.stop && !s.sent {
		s.stopped = reset
		s.out.flight = nil
		s.endLocked(reset)
	}
	if p.abort && !s.read {
		s.cutoff, s.in = reset, nil
		s.endLocked(reset)
	}
	if (p.fin || p.frame != nil) && s.aborted == nil && s.cutoff == nil {
		s.in = append(s.in, p)
	}
	s.bell.ring()
}
