package link

import (
	"context"
	"crypto/rand"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// firstPacket is the first of a QUIC handshake that nobody goes on with.
func firstPacket(t *testing.T, id *identity.Identity) []byte {
	sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) // records what a dialler sends
	require.NoError(t, err)
	defer sink.Close()
	n, err := New(Config{Identity: id, Lanes: []string{wire.LaneQUIC}})
	require.NoError(t, err)
	c, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _, _ = n.Dial(c, sink.LocalAddr().String()) }()
	b := make([]byte, 2048)
	k, err := sink.Read(b)
	require.NoError(t, err)
	return b[:k]
}

// strangers flood a listener's two ports: garbage, handshakes that nobody ends, and bytes that
// trickle.
func strangers(t *testing.T, addr string, rounds int) {
	var first [10][]byte
	for i := range first {
		first[i] = firstPacket(t, memberOf(t, transporttest.OtherToken(), "stranger", time.Now))
	}
	garbage := make([]byte, 1200)
	for i := range rounds {
		udp, err := net.Dial("udp4", addr) // a socket for each: every one is a stranger of its own
		require.NoError(t, err)
		_, _ = rand.Read(garbage)
		_, _ = udp.Write(garbage)
		garbage[0] |= 0xc0 // a long header
		_, _ = udp.Write(garbage)
		_, _ = udp.Write(first[i%len(first)])
		_ = udp.Close()
		if tcp, err := net.Dial("tcp4", addr); err == nil {
			_, _ = tcp.Write([]byte{22})
			t.Cleanup(func() { _ = tcp.Close() })
		}
	}
}

func TestStrangersAtBothPortsHarmNoLinkAndLeaveNothing(t *testing.T) {
	leak.Check(t)
	_, quiet := transporttest.NewLogBook()
	cfg := Config{Identity: memberOf(t, transporttest.Token(), "w", time.Now), Lanes: []string{wire.LaneBulk}, Logger: quiet}
	l := listen(t, cfg)
	n, err := New(cfg)
	require.NoError(t, err)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	defer there.Close("")
	mine, err := here.Open(t.Context())
	require.NoError(t, err)
	defer mine.Reset(nil)
	require.NoError(t, mine.Send(t.Context(), &wire.Message{Header: []byte("x")}))
	theirs, err := there.Accept(t.Context())
	require.NoError(t, err)
	defer theirs.Reset(nil)
	before := runtime.NumGoroutine()
	for range 10 {
		strangers(t, l.Addr(), 50)
		m, err := theirs.Recv(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(m.Header))
		require.NoError(t, mine.Send(t.Context(), m))
	}
	require.Less(t, runtime.NumGoroutine()-before, 1000)
	second, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err, "a member gets in all the same")
	require.NoError(t, second.Close(""))
}
