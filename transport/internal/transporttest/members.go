package transporttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/wire"
)

// Listen listens at this machine until the test ends.
func Listen(t testing.TB, n wire.Network) wire.Listener {
	l, err := n.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// Refused dials three times and expects to be refused each time, within a second.
func Refused(t testing.TB, n wire.Network, addr string) error {
	var err error
	for range 3 {
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = n.Dial(c, addr)
		cancel()
		require.ErrorIs(t, err, wire.ErrIdentity)
		require.NotErrorIs(t, err, wire.ErrUnreachable)
		var e *wire.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, addr, e.Peer)
	}
	return err
}
