package transport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

func TestAHostsHandshakesAreBoundedAndItsWorkersMayAllJoinAtOnce(t *testing.T) {
	a, now := newAdmission(), time.Unix(0, 0)
	for range 64 {
		require.True(t, a.admit(now, "one"))
	}
	require.True(t, a.many())
	for range 64 {
		a.over()
	}
	require.False(t, a.many())
	admitted := 64
	for range 10_000 {
		if a.admit(now, "one") {
			admitted++
			a.over()
		}
	}
	require.Equal(t, hostBurst, admitted)
	require.True(t, a.admit(now, "two"), "others are not disturbed")
	require.True(t, a.admit(now.Add(time.Second), "one"), "and it may try again")
}

func TestHandshakesUnderWayAreBounded(t *testing.T) {
	a := newAdmission()
	for i := range 10_000 {
		a.admit(time.Unix(0, 0), fmt.Sprint(i))
	}
	require.Equal(t, handshakesMost, a.under)
}

func TestTheHostsThatAreCountedAreBounded(t *testing.T) {
	a, r := newAdmission(), rand.New(rand.NewPCG(1, 1))
	now := time.Unix(0, 0)
	for range 100_000 {
		now = now.Add(time.Duration(r.IntN(1000)) * time.Microsecond)
		if a.admit(now, fmt.Sprint(r.IntN(1<<20))) {
			a.over()
		}
		require.LessOrEqual(t, len(a.hosts), hostsMost)
	}
}

func TestHandshakesThatAreNotFinishedDoNotKeepAPeerOut(t *testing.T) {
	leak.Check(t)
	id := fromToken(t, testToken, "w", time.Now)
	l := listen(t, Config{Identity: id})
	udp, err := net.ListenUDP("udp4", nil)
	require.NoError(t, err)
	defer udp.Close()
	tr := &quic.Transport{Conn: &deaf{udp}}
	defer tr.Close()
	to, err := net.ResolveUDPAddr("udp", l.Addr())
	require.NoError(t, err)
	for range 100 {
		go func() { _, _ = tr.Dial(t.Context(), to, id.tlsConfig(ALPN), &quic.Config{}) }()
	}
	g := l.(*quicListener).gate
	require.Eventually(t, func() bool { return g.verify(nil) }, 10*time.Second, time.Millisecond)
	n, err := New(Config{Identity: id})
	require.NoError(t, err)
	link, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	require.NoError(t, link.Close(""))
}

// deaf hears nothing.
type deaf struct{ net.PacketConn }

func (d *deaf) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if n, from, err := d.PacketConn.ReadFrom(b); err != nil {
			return n, from, err
		}
	}
}
