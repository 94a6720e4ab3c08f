package client

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A listener that accepts nobody yet has a connection without an owner, which would seem to be
// root's.
func TestAClientWaitsUntilAServerHasAcceptedItToSeeWhoseItIs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer nc.Close()
	c, cancel := context.WithCancel(t.Context())
	vouched := make(chan error, 1)
	go func() { vouched <- vouch(c, nc) }()
	require.Empty(t, vouched)
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, <-vouched)
	nc, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer nc.Close()
	cancel()
	require.ErrorIs(t, vouch(c, nc), context.Canceled)
}
