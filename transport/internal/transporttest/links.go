package transporttest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/wire"
)

func orderlyClose(t *testing.T, p *Pair) {
	require.NoError(t, p.Dialed.Err())
	require.NoError(t, p.Dialed.Close("going home "+strings.Repeat("é", 1000)))
	<-p.Dialed.Done()
	require.ErrorIs(t, p.Dialed.Err(), wire.ErrClosed)
	<-p.Served.Done()
	err := p.Served.Err()
	require.ErrorIs(t, err, wire.ErrPeerClosed)
	require.NotErrorIs(t, err, wire.ErrPeerLost)
	require.ErrorContains(t, err, "going home")
	_, err = p.Served.Open(p.C)
	require.ErrorIs(t, err, wire.ErrPeerClosed)
	_, err = p.Served.Accept(p.C)
	require.ErrorIs(t, err, wire.ErrPeerClosed)
	_, err = p.Dialed.Open(p.C)
	require.ErrorIs(t, err, wire.ErrClosed)
	require.NoError(t, p.Dialed.Close("again"))
}

func endOfLink(t *testing.T, p *Pair) {
	here, there := p.Stream(t)
	received, accepted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := there.Recv(p.C, nil)
		received <- err
	}()
	go func() {
		_, err := p.Served.Accept(p.C)
		accepted <- err
	}()
	watched := there.Context()
	require.NoError(t, p.Dialed.Close("bye"))
	require.ErrorIs(t, <-received, wire.ErrPeerClosed)
	require.ErrorIs(t, <-accepted, wire.ErrPeerClosed)
	require.ErrorIs(t, done(watched), wire.ErrPeerClosed)
	require.ErrorIs(t, done(here.Context()), wire.ErrClosed)
	require.ErrorIs(t, there.Send(p.C, text("x")), wire.ErrPeerClosed)
	require.ErrorIs(t, here.Send(p.C, text("x")), wire.ErrClosed)
	require.ErrorIs(t, there.CloseSend(), wire.ErrPeerClosed)
}

func closedListener(t *testing.T, p *Pair) {
	waiting := make(chan error, 1)
	go func() {
		_, err := p.Listener.Accept(p.C)
		waiting <- err
	}()
	require.NoError(t, p.Listener.Close())
	require.ErrorIs(t, <-waiting, wire.ErrClosed)
	require.NoError(t, p.Listener.Close())
	here, there := p.Stream(t) // the link lives on
	require.NoError(t, there.Send(p.C, text("alive")))
	p.expect(t, here, "alive")
}

func dialContext(t *testing.T, p *Pair) {
	c, cancel := context.WithCancel(p.C)
	cancel()
	_, err := p.Dialer.Dial(c, p.Listener.Addr())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, wire.ErrUnreachable)
}
