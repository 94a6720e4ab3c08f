package transport

import (
	"context"

	"github.com/quic-go/quic-go"
)

// dialHaul makes the connection for hauling of a dialled link. It has its own use of the link's socket.
func (n *quicNet) dialHaul(c context.Context, s *socket, link *quic.Conn) (*quic.Conn, error) {
	with, err := exportSecret(link, LaneQUIC)
	if err != nil {
		return nil, err
	}
	if !s.join() {
		return nil, ErrClosed
	}
	conn, err := s.tr.Dial(c, link.RemoteAddr(), tlsConfig(n.cfg.Identity, haulALPN), n.quicConfig(-1))
	if err != nil {
		s.leave()
		return nil, err
	}
	context.AfterFunc(conn.Context(), s.leave)
	endWith(link, conn)
	stop := context.AfterFunc(c, func() { _ = conn.CloseWithError(codeClosed, "no answer came") })
	err = greetHaul(c, conn, &with.secret)
	if !stop() && err == nil {
		err = c.Err()
	}
	if err != nil {
		_ = conn.CloseWithError(codeBreach, truncate(err.Error()))
		return nil, err
	}
	return conn, nil
}
