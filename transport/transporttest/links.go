package transporttest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/transport"
)

func orderlyClose(t *testing.T, p *Pair) {
	require.NoError(t, p.Dialed.Err())
	require.NoError(t, p.Dialed.Close("going home "+strings.Repeat("é", 1000)))
	<-p.Dialed.Done()
	require.ErrorIs(t, p.Dialed.Err(), transport.ErrClosed)
	<-p.Served.Done()
	err := p.Served.Err()
	require.ErrorIs(t, err, transport.ErrPeerClosed)
	require.NotErrorIs(t, err, transport.ErrPeerLost)
	require.ErrorContains(t, err, "going home")
	_, err = p.Served.Open(p.C)
	require.ErrorIs(t, err, transport.ErrPeerClosed)
	_, err = p.Served.Accept(p.C)
	require.ErrorIs(t, err, transport.ErrPeerClosed)
	_, err = p.Dialed.Open(p.C)
	require.ErrorIs(t, err, transport.ErrClosed)
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
	require.ErrorIs(t, <-received, transport.ErrPeerClosed)
	require.ErrorIs(t, <-accepted, transport.ErrPeerClosed)
	require.ErrorIs(t, done(watched), transport.ErrPeerClosed)
	require.ErrorIs(t, done(here.Context()), transport.ErrClosed)
	require.ErrorIs(t, there.Send(p.C, text("x")), transport.ErrPeerClosed)
	require.ErrorIs(t, here.Send(p.C, text("x")), transport.ErrClosed)
	require.ErrorIs(t, there.CloseSend(), transport.ErrPeerClosed)
}

func closedListener(t *testing.T, p *Pair) {
	waiting := make(chan error, 1)
	go func() {
		_, err := p.Listener.Accept(p.C)
		waiting <- err
	}()
	require.NoError(t, p.Listener.Close())
	require.ErrorIs(t, <-waiting, transport.ErrClosed)
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
	require.ErrorIs(t, err, transport.ErrUnreachable)
}
