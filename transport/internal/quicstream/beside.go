package quicstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// redial is how long to wait before another data connection is dialled, where one was lost or could
// not be had.
const redial = 2 * lane.SetUpTimeout

// EndWith has a data connection end with its link's.
func EndWith(link, conn *quic.Conn) {
	stop := context.AfterFunc(link.Context(), func() { _ = conn.CloseWithError(CodeClosed, "the link has ended") })
	context.AfterFunc(conn.Context(), func() { stop() })
}

// dialLocked begins to dial, where there is nothing yet and it was not tried lately.
func (h *Channel) dialLocked(now time.Time) {
	if h.Dial == nil || h.beside != nil || h.err != nil || now.Before(h.dialAfter) {
		return
	}
	h.dialAfter = now.Add(redial)
	go func() {
		c, cancel := context.WithTimeout(h.conn.Context(), lane.SetUpTimeout)
		defer cancel()
		if conn, err := h.Dial(c); err == nil {
			h.Use(conn)
		}
	}()
}

// route gives the connection for a transfer.
func (h *Channel) route() *quic.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beside != nil && h.beside.Context().Err() == nil {
		return h.beside
	}
	return h.conn
}

// Use has further transfers go by a connection of their own.
func (h *Channel) Use(conn *quic.Conn) {
	context.AfterFunc(conn.Context(), func() { h.lose(conn) })
	h.mu.Lock()
	h.beside = conn
	h.mu.Unlock()
	go h.accept(conn)
}

// lose goes on without a connection that has ended: mostly because the link is about to.
func (h *Channel) lose(conn *quic.Conn) {
	h.mu.Lock()
	if h.beside == conn {
		h.beside = nil
	}
	over := h.err != nil
	h.mu.Unlock()
	if !over {
		h.env.Suspect(fmt.Errorf("transport: the connection for tensors broke: %w", context.Cause(conn.Context())))
	}
}

// verdict says why a transfer failed: where its connection has ended, what became of the link.
func (h *Channel) verdict(c context.Context, err error) error {
	if !connEnded(err) {
		return err
	}
	timer := time.NewTimer(lane.VerdictTimeout)
	defer timer.Stop()
	select {
	case <-h.over:
		return h.err // it was set before
	case <-c.Done():
		return context.Cause(c)
	case <-timer.C:
		return fmt.Errorf("%w (%w)", wire.ErrReset, err)
	}
}

// connEnded says whether an error of a stream is that of its connection.
func connEnded(err error) bool {
	var (
		app       *quic.ApplicationError
		transport *quic.TransportError
		idle      *quic.IdleTimeoutError
		restarted *quic.StatelessResetError
	)
	return errors.As(err, &app) || errors.As(err, &transport) || errors.As(err, &idle) || errors.As(err, &restarted) || errors.Is(err, net.ErrClosed)
}
