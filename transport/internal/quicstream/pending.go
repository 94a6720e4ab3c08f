package quicstream

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Large tensors that travel over QUIC have a connection of their own beside the link's, between the
// same sockets: on one connection a call would stand behind them in its window, and behind their
// packets at both ends. The dialler of the link dials it when the first of them begins to move, in
// either direction; until it is there, and where it cannot be had, they travel on the link's. It
// never counts as a sign of life, and ends with its link.
//
// The dialler's first and only words on it, on one two-way stream:
//
//	greeting  48 bytes: a tag that finds the link 16, proof 32
//	answer    32 bytes: the listener's proof
const (
	ALPN         = wire.ALPN + " haul"
	greetingSize = 16 + sha256.Size
)

// binding is what both ends of a data connection know, and nobody in between.
func binding(conn *quic.Conn) ([]byte, error) {
	tls := conn.ConnectionState().TLS
	return tls.ExportKeyingMaterial("EXPORTER weft haul", nil, 32)
}

// Greet proves at the dialler which link a connection belongs to, and has the listener prove that
// it is the link's other end.
func Greet(c context.Context, conn *quic.Conn, secret *[32]byte) error {
	bound, err := binding(conn)
	if err != nil {
		return err
	}
	s, err := conn.OpenStreamSync(c)
	if err != nil {
		return err
	}
	tag := lane.LinkTag(secret)
	if _, err := s.Write(append(tag[:], lane.Prove(secret, "dialler", 0, bound)...)); err != nil {
		return err
	}
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(s, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], lane.Prove(secret, "listener", 0, bound)) {
		return fmt.Errorf("%w: who answers is not the other end of the link", wire.ErrIdentity)
	}
	return nil
}

// PendingConns are the data connections that a listener's links may still get. It is safe for
// concurrent use.
type PendingConns struct {
	mu  sync.Mutex
	has map[[16]byte]*pendingConn
}

// NewPendingConns makes those of a listener that has no links yet.
func NewPendingConns() *PendingConns { return &PendingConns{has: map[[16]byte]*pendingConn{}} }

// pendingConn is a link's one data connection, at the listener, from before the dialler may dial
// it. Fields are guarded by the mu of PendingConns.
type pendingConn struct {
	link   *quic.Conn
	secret [32]byte
	taken  bool             // there is one; there is no second
	conn   *quic.Conn       // that came before the link was set up
	use    func(*quic.Conn) // nil until it is
}

// Add expects the data connection of a link, for as long as the link lives.
func (s *PendingConns) Add(link *quic.Conn) (*pendingConn, error) {
	with, err := lane.ExportSecret(link, wire.LaneQUIC)
	if err != nil {
		return nil, err
	}
	st := &pendingConn{link: link, secret: with.Secret}
	tag := lane.LinkTag(&st.secret)
	s.mu.Lock()
	s.has[tag] = st
	s.mu.Unlock()
	context.AfterFunc(link.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.has, tag)
	})
	return st, nil
}

// Attach says what uses the connection, now or when it comes.
func (s *PendingConns) Attach(st *pendingConn, use func(*quic.Conn)) {
	s.mu.Lock()
	conn := st.conn
	st.conn, st.use = nil, use
	s.mu.Unlock()
	if conn != nil {
		use(conn)
	}
}

// Admit takes a data connection that proves which link it belongs to.
func (s *PendingConns) Admit(c context.Context, conn *quic.Conn) error {
	bound, err := binding(conn)
	if err != nil {
		return err
	}
	stream, err := conn.AcceptStream(c)
	if err != nil {
		return err
	}
	var b [greetingSize]byte
	if _, err := io.ReadFull(stream, b[:]); err != nil {
		return err
	}
	st := s.match(b, bound)
	if st == nil || st.link.Context().Err() != nil {
		return fmt.Errorf("%w: it does not know the link that it names, or has one already", wire.ErrIdentity)
	}
	EndWith(st.link, conn)
	context.AfterFunc(conn.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.taken = false
	})
	if _, err := stream.Write(lane.Prove(&st.secret, "listener", 0, bound)); err != nil {
		return err
	}
	s.mu.Lock()
	use := st.use
	if use == nil {
		st.conn = conn
	}
	s.mu.Unlock()
	if use != nil {
		use(conn)
	}
	return nil
}

// match finds the link of which a greeting proves to know the secret; nil where it does not, and
// where the link has a data connection.
func (s *PendingConns) match(greeting [greetingSize]byte, bound []byte) *pendingConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.has[[16]byte(greeting[:16])]
	if st == nil || st.taken || !hmac.Equal(greeting[16:], lane.Prove(&st.secret, "dialler", 0, bound)) {
		return nil
	}
	st.taken = true
	return st
}
