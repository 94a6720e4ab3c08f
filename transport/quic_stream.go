package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	resetCode = 1
	readAhead = 1024 // a call without large tensors is one read
)

type quicStream struct {
	link *quicLink
	s    *quic.Stream
	r    *bufio.Reader // the receiver's

	mu      sync.Mutex
	sent    bool  // CloseSend was called
	read    bool  // Recv gave io.EOF
	aborted error // what Send and Recv give once Reset was called
	ended   error // the context's cause
	ctx     context.Context
	cancel  context.CancelCauseFunc
	unwatch func() bool
}

func newQUICStream(l *quicLink, s *quic.Stream) *quicStream {
	return &quicStream{link: l, s: s, r: bufio.NewReaderSize(s, readAhead)}
}

func (s *quicStream) Send(c context.Context, m *Message) error {
	release, err := interruptible(c, s.s.SetWriteDeadline)
	if err == nil {
		err = release(s.link.net.codec.Encode(s.s, m))
	}
	if err == nil && m.End {
		return s.CloseSend()
	}
	return s.fail("send to", err)
}

func (s *quicStream) Recv(c context.Context, place Place) (m *Message, err error) {
	release, err := interruptible(c, s.s.SetReadDeadline)
	if err == nil {
		m, err = s.link.net.codec.Decode(s.r, place)
		err = release(err)
	}
	switch {
	case err == nil:
		if m.End {
			s.finish(false, true)
		}
		return m, nil
	case err == io.EOF:
		s.finish(false, true)
		return nil, io.EOF
	case errors.Is(err, ErrFrame):
		s.Reset(err) // the peer breaks the rules: nothing that follows makes sense
		return nil, err
	}
	return nil, s.fail("receive from", err)
}

func (s *quicStream) CloseSend() error {
	s.mu.Lock()
	aborted := s.aborted
	s.mu.Unlock()
	if aborted != nil {
		return aborted
	}
	if err := s.s.Close(); err != nil {
		return s.fail("close", &quic.StreamError{Remote: true}) // the only reason that Close knows
	}
	if cause := context.Cause(s.link.conn.Context()); cause != nil {
		return s.fail("close", cause)
	}
	s.finish(true, false)
	return nil
}

// finish notes that a direction has ended in good order.
func (s *quicStream) finish(sent, read bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.read = s.sent || sent, s.read || read
	if s.sent && s.read {
		s.endLocked(ErrFinished)
	}
}

func (s *quicStream) Reset(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted != nil || s.sent && s.read {
		return
	}
	s.aborted = &Error{Op: "stream with", Peer: s.link.peer, Err: ErrReset, Reason: "by this side", Cause: reason}
	if !s.read {
		s.s.CancelRead(resetCode)
	}
	if !s.sent || reason != nil {
		s.s.CancelWrite(resetCode)
	}
	s.endLocked(s.aborted)
}

// Context is made on demand: most streams are used by callers, who have a context of their own.
func (s *quicStream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithCancelCause(context.Background())
		if s.ended != nil {
			s.cancel(s.ended)
		} else {
			s.watchLocked(s.s.Context())
		}
	}
	return s.ctx
}

// watchLocked ends the stream's context with qc. quic-go ends a stream's own context when the peer wants no more
// data, when the link is lost, and also with CloseSend: then only the link is left to watch.
func (s *quicStream) watchLocked(qc context.Context) {
	s.unwatch = context.AfterFunc(qc, func() {
		cause := context.Cause(qc)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.ended != nil:
		case errors.Is(cause, quic.ErrStreamClosed):
			s.watchLocked(s.link.conn.Context())
		default:
			s.endLocked(s.link.fail("stream with", cause))
		}
	})
}

func (s *quicStream) endLocked(cause error) {
	if s.ended != nil {
		return
	}
	s.ended = cause
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// fail says in this package's words why op failed. Errors that are not the network's pass as they are.
func (s *quicStream) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	_, sentinel := classify(err)
	if sentinel == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted != nil && (errors.Is(sentinel, ErrReset) || errors.Is(sentinel, ErrClosed)) {
		return s.aborted
	}
	own := errors.Is(err, quic.ErrStreamClosed) || isContextEnd(err) // after CloseSend, or the caller's context: it can go on
	err = s.link.fail(op, err)
	if !own {
		s.endLocked(err)
	}
	return err
}

// interruptible lets c's end interrupt a call on the stream, by a deadline in the past. release takes the deadline back
// and puts c's error in the place of the deadline's.
func interruptible(c context.Context, setDeadline func(time.Time) error) (release func(error) error, err error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if c.Done() == nil {
		return func(err error) error { return err }, nil
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(c, func() {
		_ = setDeadline(time.Unix(1, 0)) // never fails
		close(fired)
	})
	return func(err error) error {
		if stop() {
			return err
		}
		<-fired
		_ = setDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return c.Err()
		}
		return err
	}, nil
}
