package transport

import (
	"context"
	"errors"
	"net"
	"unicode/utf8"

	"github.com/quic-go/quic-go"
)

const maxReason = 200 // bytes; a reason must fit into one packet

type quicLink struct {
	net  *quicNet
	conn *quic.Conn
	peer string
}

func newQUICLink(n *quicNet, conn *quic.Conn, peer string) *quicLink {
	return &quicLink{net: n, conn: conn, peer: peer}
}

func (l *quicLink) Open(c context.Context) (Stream, error) {
	s, err := l.conn.OpenStreamSync(c)
	if err != nil {
		return nil, l.fail("open a stream to", err)
	}
	return newQUICStream(l, s), nil
}

func (l *quicLink) Accept(c context.Context) (Stream, error) {
	s, err := l.conn.AcceptStream(c)
	if err != nil {
		return nil, l.fail("accept a stream from", err)
	}
	return newQUICStream(l, s), nil
}

func (l *quicLink) RemoteAddr() string { return l.peer }

func (l *quicLink) Lanes() []LaneState { return []LaneState{{Name: LaneQUIC}} }

func (l *quicLink) Done() <-chan struct{} { return l.conn.Context().Done() }

func (l *quicLink) Err() error {
	if l.conn.Context().Err() == nil {
		return nil
	}
	return l.fail("link with", context.Cause(l.conn.Context()))
}

func (l *quicLink) Close(reason string) error {
	return l.conn.CloseWithError(0, truncate(reason))
}

// truncate cuts a reason to its bound, between characters.
func truncate(s string) string {
	if len(s) <= maxReason {
		return s
	}
	n := maxReason
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// fail says in this package's words why op failed.
func (l *quicLink) fail(op string, err error) error {
	reason, sentinel := classify(err)
	if sentinel == nil {
		sentinel = ErrPeerLost
	}
	e := &Error{Op: op, Peer: l.peer, Err: sentinel, Reason: reason}
	if reason == "" && !isContextEnd(err) {
		e.Cause = err
	}
	return e
}

// isContextEnd says that err is a context's own error, as interrupted calls return it.
func isContextEnd(err error) bool {
	return err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // a wrapped one is somebody else's
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

// identityRefused says whether a handshake failed over a certificate, and whose: the listening side's words.
func identityRefused(err error) (bool, string) {
	var t *quic.TransportError
	if !errors.As(err, &t) || !t.ErrorCode.IsCryptoError() {
		return false, ""
	}
	switch t.ErrorCode - 0x100 { // the TLS alert
	case 42, 43, 44, 45, 46, 48, 49, 116: // bad, unsupported, revoked, expired, unknown certificate; unknown CA; access denied; certificate required
	default:
		return false, ""
	}
	if t.Remote {
		return true, "the peer does not take this worker's certificate"
	}
	return true, "this worker does not take the peer's certificate"
}

// dialError finds the sentinel for a failed Dial.
func dialError(err error) error {
	if refused, _ := identityRefused(err); refused {
		return ErrIdentity
	}
	return ErrUnreachable
}
