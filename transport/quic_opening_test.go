package transport

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"

	"github.com/weft-project/weft/internal/leak"
)

// overheard keeps the datagrams that are sent, and lets each one go.
type overheard struct {
	net.PacketConn
	sent chan []byte
}

func (o *overheard) WriteTo(b []byte, to net.Addr) (int, error) {
	o.sent <- bytes.Clone(b)
	return o.PacketConn.WriteTo(b, to)
}

func TestADatagramOpensAHandshakeUntilItShowsThatItsAddressIsItsOwn(t *testing.T) {
	leak.Check(t)
	for _, version := range []quic.Version{quic.Version1, quic.Version2} {
		udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		server := &quic.Transport{Conn: udp, VerifySourceAddress: func(net.Addr) bool { return true }}
		id := fromToken(t, testToken, "w", time.Now)
		l, err := server.Listen(id.tlsConfig(ALPN), &quic.Config{})
		require.NoError(t, err)
		mine, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		o := &overheard{mine, make(chan []byte, 1<<10)}
		client := &quic.Transport{Conn: o}
		conn, err := client.Dial(t.Context(), udp.LocalAddr(), id.tlsConfig(ALPN), &quic.Config{Versions: []quic.Version{version}})
		require.NoError(t, err)
		require.NoError(t, conn.CloseWithError(0, ""))
		require.NoError(t, l.Close())
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		require.NoError(t, mine.Close())
		require.NoError(t, udp.Close())
		close(o.sent)
		opened, more := 0, 0
		for b := range o.sent {
			if opens(b) {
				require.Zero(t, more, "after the token none opens")
				opened++
			} else {
				more++
			}
			for n := range min(len(b), 60) {
				opens(b[:n]) // cut anywhere, it does not fail
			}
		}
		require.Positive(t, opened, "%v", version)
		require.Positive(t, more, "%v", version)
	}
	require.False(t, opens([]byte{quicV1Initial, 0, 0, 0, 9, 0, 0, 0}), "another version")
	require.False(t, opens([]byte{quicV2Initial, 0, 0, 0, 1, 0, 0, 0}), "no Initial packet of this version")
	require.True(t, opens([]byte{quicV1Initial, 0, 0, 0, 1, 0, 0, 0}))
}

func FuzzAnOpening(f *testing.F) {
	f.Add([]byte{quicV1Initial, 0, 0, 0, 1, 2, 7, 7, 1, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if opens(b) {
			scid := 6 + int(b[5])
			require.Zero(t, b[scid+1+int(b[scid])], "the token's length")
		}
	})
}

func TestASocketGivesEveryDatagramThatIsHeededOnceAndWhole(t *testing.T) {
	leak.Check(t)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer udp.Close()
	from, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer from.Close()
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	socket := eagerSocket(udp, func(b []byte, by net.Addr) bool {
		require.Equal(t, from.LocalAddr().String(), by.String())
		return b[0] == 1
	}).(*eagerUDP)
	ms := make([]ipv4.Message, 8)
	for range 200 {
		var want, got [][]byte
		for range 1 + rnd.IntN(20) {
			b := make([]byte, 1+rnd.IntN(1200))
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			b[0] = byte(rnd.IntN(2))
			if b[0] == 1 {
				want = append(want, b)
			}
			_, err := from.WriteTo(b, udp.LocalAddr())
			require.NoError(t, err)
		}
		last := []byte{1}
		want = append(want, last)
		_, err = from.WriteTo(last, udp.LocalAddr())
		require.NoError(t, err)
		for len(got) < len(want) {
			for i := range ms {
				ms[i].Buffers, ms[i].OOB = [][]byte{make([]byte, 1452)}, make([]byte, 64)
			}
			n, err := socket.ReadBatch(ms, 0)
			require.NoError(t, err)
			require.Positive(t, n)
			for _, m := range ms[:n] {
				require.Equal(t, from.LocalAddr().String(), m.Addr.String())
				got = append(got, m.Buffers[0][:m.N])
			}
		}
		require.Equal(t, want, got)
	}
}

func TestAHostIsSpentByWhatItHasShownToBeItsOwnAlone(t *testing.T) {
	a, now := newAdmission(), time.Unix(0, 0)
	for range 10_000 {
		if mine, _ := a.enter(now, "one", false, false); mine != nil { // anyone may have sent this
			mine.leave()
		}
	}
	require.True(t, a.crowded(now))
	require.False(t, a.spent(now, "one"))
	for begun := 0; !a.spent(now, "one"); begun++ {
		require.LessOrEqual(t, begun, int(strangerTerms.burst))
		mine, _ := a.enter(now, "one", true, false)
		require.NotNil(t, mine)
		mine.leave()
	}
	mine, _ := a.enter(now, "one", true, false)
	require.Nil(t, mine)
	require.False(t, a.spent(now, "two"))
	require.Nil(t, a.strangers.accounts["two"], "to ask is free")
	require.False(t, a.spent(now.Add(time.Second), "one"), "it may try again")
}

// TestASpentHostIsNotAnswered sends an opening from a host that has begun too many handshakes, and then one from another host, which
// is answered.
func TestASpentHostIsNotAnswered(t *testing.T) {
	leak.Check(t)
	id := fromToken(t, testToken, "w", time.Now)
	l := listen(t, Config{Identity: id}).(*quicListener)
	opening, to := anOpening(t, id), udpAddr(t, l.Addr())
	at := func(host string) *net.UDPConn {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(host)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = udp.Close() })
		return udp
	}
	spend := func(host string, proved bool) {
		l.gate.mu.Lock()
		defer l.gate.mu.Unlock()
		for range int(strangerTerms.burst) {
			if mine, _ := l.gate.a.enter(time.Now().Add(time.Hour), host, proved, false); mine != nil { // no time brings it anything
				mine.leave()
			}
		}
	}
	answered := func(udp *net.UDPConn) {
		_, err := udp.WriteTo(opening, to)
		require.NoError(t, err)
		n, err := udp.Read(make([]byte, 1500))
		require.NoError(t, err)
		require.Positive(t, n)
	}
	spent, other := at("127.0.0.2"), at("127.0.0.3")
	spend("anyone", false)
	answered(spent)
	spend("127.0.0.2", true)
	_, err := spent.WriteTo(opening, to)
	require.NoError(t, err)
	answered(other)
	require.NoError(t, spent.SetReadDeadline(time.Unix(1, 0)))
	_, err = spent.Read(make([]byte, 1500))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "who came before the other one has no answer")
	l.net.known.add("127.0.0.2")
	require.NoError(t, spent.SetReadDeadline(time.Time{}))
	answered(spent) // members are there
}

// anOpening is the first datagram of a dial.
func anOpening(t *testing.T, id *Identity) []byte {
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer udp.Close()
	nobody, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer nobody.Close()
	o := &overheard{udp, make(chan []byte, 1<<10)}
	tr := &quic.Transport{Conn: o}
	defer tr.Close()
	c, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = tr.Dial(c, nobody.LocalAddr(), id.tlsConfig(ALPN), nil) // it fails: nobody answers
	}()
	b := <-o.sent
	cancel()
	<-done
	require.True(t, opens(b))
	return b
}
