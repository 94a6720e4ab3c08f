//go:build unix

package transport

import (
	"bytes"
	"math/rand/v2"
	"net"
	"syscall"
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
		client := &quic.Transport{Conn: o, ConnectionIDGenerator: id.marks}
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
			if by, ok := opens(b); ok {
				require.True(t, id.marks.on(by))
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
	for datagram, want := range map[string]bool{
		"\xc0\x00\x00\x00\x01\x00\x00\x00": true,
		"\xc0\x00\x00\x00\x09\x00\x00\x00": false, // another version
		"\xd0\x00\x00\x00\x01\x00\x00\x00": false, // no Initial packet of this version
		"\xc0\x00\x00\x00\x01\x00\x00\x01": false, // a token
	} {
		_, ok := opens([]byte(datagram))
		require.Equal(t, want, ok, "%q", datagram)
	}
}

func TestAMarkIsSeenByWhoeverHasTheSecretAndByNobodyElse(t *testing.T) {
	id, other := fromToken(t, testToken, "w", time.Now), fromToken(t, otherToken, "w", time.Now)
	same := fromToken(t, testToken, "another worker", time.Now)
	elsewhere, err := IdentityFromToken(testToken, "another job", "w", time.Now)
	require.NoError(t, err)
	seen := map[string]bool{}
	for range 1000 {
		made, err := id.marks.GenerateConnectionID()
		require.NoError(t, err)
		require.True(t, same.marks.on(made.Bytes()))
		for _, m := range []marks{other.marks, elsewhere.marks, {}} {
			require.False(t, m.on(made.Bytes()))
		}
		require.False(t, id.marks.on(made.Bytes()[1:]))
		seen[made.String()] = true
	}
	require.Greater(t, len(seen), 990, "they differ")
	none, err := marks{}.GenerateConnectionID()
	require.NoError(t, err)
	require.False(t, marks{}.on(none.Bytes()), "without a secret there are no marks")
}

func FuzzAnOpening(f *testing.F) {
	f.Add([]byte{quicV1Initial, 0, 0, 0, 1, 2, 7, 7, 1, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if by, ok := opens(b); ok {
			scid := 6 + int(b[5])
			require.EqualValues(t, b[scid], len(by))
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

// door is a listener, and hosts at which somebody dials to it.
type door struct {
	*testing.T
	*quicListener
	hosts map[string]*net.UDPConn
}

func newDoor(t *testing.T, id *Identity, hosts ...string) *door {
	d := &door{t, listen(t, Config{Identity: id}).(*quicListener), map[string]*net.UDPConn{}}
	for _, host := range hosts {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(host)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = udp.Close() })
		d.hosts[host] = udp
	}
	return d
}

// spend has a host begin as many handshakes as it may for an hour.
func (d *door) spend(host string, proved bool) {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	for range int(strangerTerms.burst) {
		if mine, _ := d.gate.a.enter(time.Now().Add(time.Hour), host, proved, false); mine != nil {
			mine.leave()
		}
	}
}

func (d *door) send(host string, datagram []byte) *net.UDPConn {
	_, err := d.hosts[host].WriteTo(datagram, udpAddr(d, d.Addr()))
	require.NoError(d, err)
	return d.hosts[host]
}

func (d *door) answers(host string, datagram []byte) {
	n, err := d.send(host, datagram).Read(make([]byte, 1500))
	require.NoError(d, err)
	require.Positive(d, n)
}

// ignores sees that there is no answer when one that came later has got its own.
func (d *door) ignores(host string, datagram []byte, otherHost string, other []byte) {
	udp := d.send(host, datagram)
	d.answers(otherHost, other)
	raw, err := udp.SyscallConn()
	require.NoError(d, err)
	require.NoError(d, raw.Read(func(fd uintptr) bool {
		_, _, err = syscall.Recvfrom(int(fd), make([]byte, 1500), syscall.MSG_DONTWAIT)
		return true
	}))
	require.ErrorIs(d, err, syscall.EAGAIN, "nothing more has come")
}

func TestInACrowdMembersAloneAreAnswered(t *testing.T) {
	leak.Check(t)
	id := fromToken(t, testToken, "w", time.Now)
	member, stranger := firstPacket(t, id), firstPacket(t, fromToken(t, otherToken, "stranger", time.Now))
	d := newDoor(t, id, "127.0.0.2", "127.0.0.3", "127.0.0.4")
	d.answers("127.0.0.4", firstPacket(t, fromToken(t, otherToken, "stranger", time.Now)))
	d.spend("anyone", false)
	d.ignores("127.0.0.2", stranger, "127.0.0.3", member)
	d.net.known.add("127.0.0.2")
	d.ignores("127.0.0.2", stranger, "127.0.0.3", member)
}

func TestWhereMembersHaveNoMarksASpentHostIsNotAnswered(t *testing.T) {
	leak.Check(t)
	files := &disk{}
	files.put(t, "w", newAuthority(t, "job", time.Now()), time.Now())
	id, _ := files.identity(t, "w", time.Now)
	d, opening := newDoor(t, id, "127.0.0.2", "127.0.0.3"), firstPacket(t, id)
	d.spend("anyone", false)
	d.answers("127.0.0.2", opening)
	d.spend("127.0.0.2", true)
	d.ignores("127.0.0.2", opening, "127.0.0.3", opening)
	d.net.known.add("127.0.0.2")
	d.answers("127.0.0.2", opening) // members are there
}
