package link

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/mux"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Link is a session whose life hangs on a QUIC connection.
type Link struct {
	*mux.Session
	Conn   *quic.Conn
	peer   string
	lanes  []wire.LaneState // as they were negotiated, in order of preference; LaneQUIC last
	Data   *quicstream.Channel
	id     *identity.Identity // this end's
	by     string             // the lane on which frames travel; LaneQUIC has the connection's kept stream
	frames *lane.Traffic
}

// newLink makes the link of a connection that is set up. lanes are the ends of those that are up,
// by name.
func newLink(conn *quic.Conn, kept *quic.Stream, cfg mux.Config, said []wire.LaneState, ends map[string]*lane.End) *Link {
	l := &Link{Conn: conn, peer: cfg.Peer, lanes: append(said, wire.LaneState{Name: wire.LaneQUIC}), by: wire.LaneQUIC, frames: &lane.Traffic{}}
	cfg.Conduit, cfg.Count, cfg.Inline = keptStream{kept}, l.frames, mux.InlineQUIC
	for _, s := range said {
		if end := ends[s.Name]; end != nil && end.Conduit != nil {
			l.by, cfg.Conduit, cfg.Inline = s.Name, end.Conduit, mux.InlineLocal
			break
		}
	}
	cfg.Explain = func(op string, err error) error { return l.explain(op, err) }
	cfg.Gone = l.gone
	cfg.RTT = func() time.Duration { return conn.ConnectionStats().SmoothedRTT }
	l.Session = mux.New(cfg)
	for _, s := range said {
		if end := ends[s.Name]; end != nil && end.NewChannel != nil {
			l.AddChannel(end.NewChannel)
		}
	}
	l.AddChannel(func(env lane.Env) lane.Channel {
		l.Data = quicstream.New(conn, env)
		return l.Data
	})
	context.AfterFunc(conn.Context(), func() { l.End(linkError(cfg.Peer, "link with", context.Cause(conn.Context()))) })
	return l
}

// explain says what a failed read or write of frames means.
func (l *Link) explain(op string, err error) error {
	if l.by == wire.LaneQUIC {
		var gaveUp *quic.StreamError
		if cause := context.Cause(l.Conn.Context()); cause != nil {
			err = cause
		}
		if err != io.EOF && !errors.As(err, &gaveUp) {
			return linkError(l.peer, op, err)
		}
	}
	return &wire.Error{Op: op, Peer: l.peer, Err: wire.ErrPeerLost, Cause: err}
}

// gone closes the connection, with the reason for the peer.
func (l *Link) gone(err error) {
	code, reason := quicstream.CodeClosed, err.Error()
	var e *wire.Error
	switch {
	case errors.Is(err, wire.ErrFrame):
		code = quicstream.CodeBreach
	case errors.As(err, &e) && errors.Is(e.Err, wire.ErrClosed):
		reason = e.Reason
	}
	_ = l.Conn.CloseWithError(quic.ApplicationErrorCode(code), wire.Truncate(reason)) // does nothing where it is gone already
}

// Vouches implements [wire.Link].
func (l *Link) Vouches(name string, rank int) error {
	return identity.Vouches(l.id, l.Conn.ConnectionState().TLS.PeerCertificates, name, rank)
}

// Lanes implements [wire.Link].
func (l *Link) Lanes() []wire.LaneState {
	all := append([]wire.LaneState(nil), l.lanes...)
	for i := range all {
		l.Account(&all[i])
		if all[i].Name == l.by {
			all[i].Sent += l.frames.Sent.Load()
			all[i].Received += l.frames.Received.Load()
		}
	}
	return all
}

// keptStream is the kept stream of a connection.
type keptStream struct{ *quic.Stream }

func (k keptStream) TryWrite(b []byte) (int, error) {
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
func (k keptStream) Close() error {
	k.CancelRead(quicstream.ResetCode)
	k.CancelWrite(quicstream.ResetCode)
	return nil
}

// linkError says in this package's words why op failed.
func linkError(peer, op string, err error) error {
	reason, sentinel := classify(err)
	if sentinel == nil {
		sentinel = wire.ErrPeerLost
	}
	e := &wire.Error{Op: op, Peer: peer, Err: sentinel, Reason: reason}
	if reason == "" && !wire.IsContextEnd(err) {
		e.Cause = err
	}
	return e
}

// classify finds the sentinel for an error of quic-go or a context, and the words of who closed the
// link. A nil sentinel means that the error is neither's.
func classify(err error) (reason string, sentinel error) {
	var (
		app       *quic.ApplicationError
		stream    *quic.StreamError
		handshake *quic.HandshakeTimeoutError
		idle      *quic.IdleTimeoutError
		restarted *quic.StatelessResetError
		broken    *quic.TransportError
	)
	switch refused, _ := identity.Refused(err); {
	case wire.IsContextEnd(err):
		return "", err
	case errors.As(err, &app) && app.Remote:
		return app.ErrorMessage, wire.ErrPeerClosed
	case errors.As(err, &app):
		return app.ErrorMessage, wire.ErrClosed
	case errors.As(err, &stream):
		return "", wire.ErrReset
	case refused:
		return "", wire.ErrIdentity
	case errors.As(err, &idle), errors.As(err, &handshake), errors.As(err, &restarted), errors.As(err, &broken):
		return "", wire.ErrPeerLost
	case errors.Is(err, quic.ErrStreamClosed), errors.Is(err, net.ErrClosed):
		return "", wire.ErrClosed
	}
	return "", nil
}

// dialError finds the sentinel for a failed Dial.
func dialError(err error) error {
	if refused, _ := identity.Refused(err); refused {
		return wire.ErrIdentity
	}
	if crowded(err) {
		return wire.ErrBusy
	}
	return wire.ErrUnreachable
}
