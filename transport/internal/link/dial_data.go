package link

import (
	"context"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/wire"
)

// dialData makes the data connection of a dialled link. It has its own use of the link's socket.
func (n *network) dialData(c context.Context, s *socket, link *quic.Conn) (*quic.Conn, error) {
	with, err := lane.ExportSecret(link, wire.LaneQUIC)
	if err != nil {
		return nil, err
	}
	if !s.acquire() {
		return nil, wire.ErrClosed
	}
	conn, err := s.tr.Dial(c, link.RemoteAddr(), identity.TLSConfig(n.cfg.Identity, quicstream.ALPN), n.quicConfig(-1))
	if err != nil {
		s.leave()
		return nil, err
	}
	context.AfterFunc(conn.Context(), s.leave)
	quicstream.EndWith(link, conn)
	stop := context.AfterFunc(c, func() { _ = conn.CloseWithError(quicstream.CodeClosed, "no answer came") })
	err = quicstream.Greet(c, conn, &with.Secret)
	if !stop() && err == nil {
		err = c.Err()
	}
	if err != nil {
		_ = conn.CloseWithError(quicstream.CodeBreach, wire.Truncate(err.Error()))
		return nil, err
	}
	return conn, nil
}
