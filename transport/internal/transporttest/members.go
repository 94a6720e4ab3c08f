package transporttest

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
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

// RawDial speaks QUIC, and nothing more.
func RawDial(t testing.TB, addr string, conf *tls.Config) (*quic.Conn, error) {
	udp, err := net.ListenUDP("udp4", nil)
	require.NoError(t, err)
	tr := &quic.Transport{Conn: udp}
	t.Cleanup(func() { _ = tr.Close(); _ = udp.Close() })
	to, err := net.ResolveUDPAddr("udp", addr)
	require.NoError(t, err)
	return tr.Dial(t.Context(), to, conf, &quic.Config{MaxIncomingUniStreams: 1})
}

// Floats is a message of one tensor of n numbers.
func Floats(t testing.TB, n int) *wire.Message {
	b, err := device.Host().Alloc(4 * n)
	require.NoError(t, err)
	return &wire.Message{Tensors: []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{n}, Buf: b}}}
}
