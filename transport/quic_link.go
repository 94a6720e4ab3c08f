package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// quicLink is a session whose life hangs on a QUIC connection.
type quicLink struct {
	*session
	conn   *quic.Conn
	peer   string
	lanes  []LaneState // as they were negotiated, in order of preference; LaneQUIC last
	hauls  *quicHauler
	id     *Identity // this end's
	kept   bool      // frames travel on the connection's kept stream
	frames *traffic
}

// newQUICLink makes the link of a connection that is set up. lanes are the ends of those that are up, by name.
func newQUICLink(conn *quic.Conn, kept *quic.Stream, cfg sessionConfig, said []LaneState, ends map[string]*laneEnd) *quicLink {
	l := &quicLink{conn: conn, peer: cfg.peer, lanes: append(said, LaneState{Name: LaneQUIC}), kept: true, frames: &traffic{}}
	cfg.conduit, cfg.count, cfg.inline = quicConduit{kept}, l.frames, inlineQUIC
	for _, s := range said {
		if end := ends[s.Name]; end != nil && end.conduit != nil {
			l.kept, cfg.conduit, cfg.inline = false, end.conduit, inlineLocal
			break
		}
	}
	cfg.explain = func(op string, err error) error { return l.explain(op, err) }
	cfg.gone = l.gone
	cfg.rtt = func() time.Duration { return conn.ConnectionStats().SmoothedRTT }
	l.session = newSession(cfg)
	for _, s := range said {
		if end := ends[s.Name]; end != nil && end.newHauler != nil {
			l.haul(end.newHauler)
		}
	}
	l.haul(func(env laneEnv) hauler {
		l.hauls = newQUICHauler(conn, env)
		return l.hauls
	})
	context.AfterFunc(conn.Context(), func() { l.end(linkError(cfg.peer, "link with", context.Cause(conn.Context()))) })
	return l
}

// explain says what a failed read or write of frames means.
func (l *quicLink) explain(op string, err error) error {
	if l.kept {
		var gaveUp *quic.StreamError
		if cause := context.Cause(l.conn.Context()); cause != nil {
			err = cause
		}
		if err != io.EOF && !errors.As(err, &gaveUp) {
			return linkError(l.peer, op, err)
		}
	}
	return &Error{Op: op, Peer: l.peer, Err: ErrPeerLost, Cause: err}
}

// gone closes the connection, with the reason for the peer.
func (l *quicLink) gone(err error) {
	code, reason := codeClosed, err.Error()
	var e *Error
	switch {
	case errors.Is(err, ErrFrame):
		code = codeBreach
	case errors.As(err, &e) && errors.Is(e.Err, ErrClosed):
		reason = e.Reason
	}
	_ = l.conn.CloseWithError(quic.ApplicationErrorCode(code), truncate(reason)) // does nothing where it is gone already
}

func (l *quicLink) Vouches(name string, rank int) error {
	return vouches(l.id, l.conn.ConnectionState().TLS.PeerCertificates, name, rank)
}

func (l *quicLink) Lanes() []LaneState {
	all := append([]LaneState(nil), l.lanes...)
	for i := range all {
		l.account(&all[i])
	}
	frames := &all[len(all)-1]
	if !l.kept {
		for i := range all {
			if all[i].Name == LaneLocal {
				frames = &all[i]
			}
		}
	}
	frames.Sent += l.frames.sent.Load()
	frames.Received += l.frames.received.Load()
	return all
}

// quicConduit is the kept stream of a connection.
type quicConduit struct{ *quic.Stream }

func (k quicConduit) TryWrite(b []byte) (int, error) {
	err := k.TryWriteAll(b)
	switch {
	case err == nil:
		return len(b), nil
	case errors.Is(err, quic.ErrWouldBlock):
		return 0, nil
	}
	return 0, err
}

// Close is for the end of the link only: the connection is closed.
func (k quicConduit) Close() error {
	k.CancelRead(resetCode)
	k.CancelWrite(resetCode)
	return nil
}

// linkError says in this package's words why op failed.
func linkError(peer, op string, err error) error {
	reason, sentinel := classify(err)
	if sentinel == nil {
		sentinel = ErrPeerLost
	}
	e := &Error{Op: op, Peer: peer, Err: sentinel, Reason: reason}
	if reason == "" && !isContextEnd(err) {
		e.Cause = err
	}
	return e
}

// classify finds the sentinel for an error of quic-go or a context, and the words of who closed the link. A nil sentinel
// means that the error is neither's.
func classify(err error) (reason string, sentinel error) {
	var (
		app       *quic.ApplicationError
		stream    *quic.StreamError
		handshake *quic.HandshakeTimeoutError
		idle      *quic.IdleTimeoutError
		restarted *quic.StatelessResetError
		broken    *quic.TransportError
	)
	switch refused, _ := identityRefused(err); {
	case isContextEnd(err):
		return "", err
	case errors.As(err, &app) && app.Remote:
		return app.ErrorMessage, ErrPeerClosed
	case errors.As(err, &app):
		return app.ErrorMessage, ErrClosed
	case errors.As(err, &stream):
		return "", ErrReset
	case refused:
		return "", ErrIdentity
	case errors.As(err, &idle), errors.As(err, &handshake), errors.As(err, &restarted), errors.As(err, &broken):
		return "", ErrPeerLost
	case errors.Is(err, quic.ErrStreamClosed), errors.Is(err, net.ErrClosed):
		return "", ErrClosed
	}
	return "", nil
}

// dialError finds the sentinel for a failed Dial.
func dialError(err error) error {
	if refused, _ := identityRefused(err); refused {
		return ErrIdentity
	}
	if crowded(err) {
		return ErrBusy
	}
	return ErrUnreachable
}
