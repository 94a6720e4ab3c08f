package bulk

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/lane"
)

// Linux has all of 127.0.0.0/8 without being asked for it.
func TestAFloodOfStripesFromOneAddressHarmsThatAddressAlone(t *testing.T) {
	leak.Check(t)
	m, s, _ := bulkPair(t, 1)
	_, _, err := s.Expect(lane.Peer{Secret: [32]byte{1}, Addr: localhost}, []byte{1})
	require.NoError(t, err)
	dial := func(from byte) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
		conn, err := d.DialContext(t.Context(), "tcp4", s.ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	oldest := dial(2)
	for range 3 * maxStrangers {
		dial(3)
	}
	for _, conn := range []net.Conn{dial(4), oldest} { // the first shows that all before it were let in, or not
		require.NoError(t, tls.Client(conn, m.tls()).HandshakeContext(t.Context()))
	}
	s.Close()
}
