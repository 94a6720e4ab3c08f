//go:build unix

package link

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
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

func TestADatagramDialsUntilItsSenderHasHeardTheAnswer(t *testing.T) {
	leak.Check(t)
	for _, version := range []quic.Version{quic.Version1, quic.Version2} {
		udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		server := &quic.Transport{Conn: udp, VerifySourceAddress: func(net.Addr) bool { return true }}
		id := memberOf(t, transporttest.Token(), "w", time.Now)
		l, err := server.Listen(identity.TLSConfig(id, wire.ALPN), &quic.Config{})
		require.NoError(t, err)
		mine, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		o := &overheard{mine, make(chan []byte, 1<<10)}
		client := &quic.Transport{Conn: o, ConnectionIDGenerator: identity.MarksOf(id).IDs()}
		conn, err := client.Dial(t.Context(), udp.LocalAddr(), identity.TLSConfig(id, wire.ALPN), &quic.Config{Versions: []quic.Version{version}})
		require.NoError(t, err)
		out, err := conn.OpenUniStream()
		require.NoError(t, err)
		require.NoError(t, out.Close())
		accepted, err := l.Accept(t.Context())
		require.NoError(t, err)
		_, err = accepted.AcceptUniStream(t.Context()) // so both have heard each other
		require.NoError(t, err)
		require.NoError(t, conn.CloseWithError(0, ""))
		require.NoError(t, l.Close())
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		require.NoError(t, mine.Close())
		require.NoError(t, udp.Close())
		close(o.sent)
		dialled, more := 0, 0
		for b := range o.sent {
			if by, ok := dials(b); ok {
				require.True(t, identity.MarksOf(id).On(by), "also the packets that bring a token")
				dialled++
			} else {
				more++
			}
			for n := range min(len(b), 60) {
				dials(b[:n]) // cut anywhere, it does not fail
			}
		}
		require.GreaterOrEqual(t, dialled, 2, "%v: without a token and with one", version)
		require.Positive(t, more, "%v", version)
	}
	for datagram, want := range map[string]bool{
		"":                                 false,
		"\x40\x00\x00\x00\x01\x00\x00\x00": false, // a short header
		"\xc0\x00\x00\x00\x01\x00\x00\x00": true,
		"\xc0\x00\x00\x00\x01\x00\x00\x01": true,  // a token
		"\xc0\x00\x00\x00\x09\x00\x00\x00": true,  // another version
		"\xe0\x00\x00\x00\x09\x00\x00\x00": true,  // whose types are not known
		"\xd0\x00\x00\x00\x01\x00\x00\x00": true,  // early data
		"\xe0\x00\x00\x00\x01\x00\x00\x00": false, // Handshake packets
		"\xf0\x6b\x33\x43\xcf\x00\x00":     false,
		"\xc0\x00\x00\x00":                 true, // cut
		"\xc0\x00\x00\x00\x01\x09\x00":     true,
	} {
		by, ok := dials([]byte(datagram))
		require.Equal(t, want, ok, "%q", datagram)
		require.Empty(t, by)
	}
}

func TestAMarkIsSeenByWhoeverHasTheSecretAndByNobodyElse(t *testing.T) {
	id, other := memberOf(t, transporttest.Token(), "w", time.Now), memberOf(t, transporttest.OtherToken(), "w", time.Now)
	same := memberOf(t, transporttest.Token(), "another worker", time.Now)
	elsewhere, err := identity.FromToken(transporttest.Token(), "another job", "w", time.Now)
	require.NoError(t, err)
	seen := map[string]bool{}
	for range 1000 {
		made, err := identity.MarksOf(id).GenerateConnectionID()
		require.NoError(t, err)
		require.True(t, identity.MarksOf(same).On(made.Bytes()))
		for _, m := range []identity.Marks{identity.MarksOf(other), identity.MarksOf(elsewhere), {}} {
			require.False(t, m.On(made.Bytes()))
		}
		require.False(t, identity.MarksOf(id).On(made.Bytes()[1:]))
		seen[made.String()] = true
	}
	require.Greater(t, len(seen), 990, "they differ")
	none, err := identity.Marks{}.GenerateConnectionID()
	require.NoError(t, err)
	require.False(t, identity.Marks{}.On(none.Bytes()), "without a secret there are no marks")
}

func FuzzADial(f *testing.F) {
	f.Add([]byte{0xc0, 0, 0, 0, 1, 2, 7, 7, 1, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		by, ok := dials(b)
		require.True(t, !ok || b[0] >= 0x80)
		if by != nil {
			scid := 6 + int(b[5])
			require.Equal(t, b[scid+1:scid+1+int(b[scid])], by)
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
	}, nil).(*eagerUDP)
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
	a, now := newAdmission(unprovedTerms), time.Unix(0, 0)
	for range 10_000 {
		if mine, _ := a.enter(now, "one", false, false); mine != nil { // anyone may have sent this
			mine.Leave()
		}
	}
	require.True(t, a.crowded(now))
	require.False(t, a.spent(now, "one"))
	for begun := 0; !a.spent(now, "one"); begun++ {
		require.LessOrEqual(t, begun, int(strangerTerms.Burst))
		mine, _ := a.enter(now, "one", true, false)
		require.NotNil(t, mine)
		mine.Leave()
	}
	mine, _ := a.enter(now, "one", true, false)
	require.Nil(t, mine)
	require.False(t, a.spent(now, "two"))
	require.Nil(t, a.strangers.Accounts["two"], "to ask is free")
	require.False(t, a.spent(now.Add(time.Second), "one"), "it may try again")
}

// door is a listener, and hosts at which somebody dials to it.
type door struct {
	*testing.T
	*Listener
	hosts map[string]*net.UDPConn
}

func newDoor(t *testing.T, id *identity.Identity, hosts ...string) *door {
	d := &door{t, listen(t, Config{Identity: id}).(*Listener), map[string]*net.UDPConn{}}
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
	for range int(strangerTerms.Burst) {
		if mine, _ := d.gate.a.enter(time.Now().Add(time.Hour), host, proved, false); mine != nil {
			mine.Leave()
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

// withToken is a first packet with a token that nobody gave, and otherVersion one of a version that
// nobody speaks. quic-go answers the first, in a crowd, as if it had no token, and the second
// always.
func withToken(first []byte) []byte {
	by, _ := dials(first)
	at := 6 + int(first[5]) + 1 + len(by)
	return slices.Concat(first[:at], []byte{1, 7}, first[at+1:])
}

func otherVersion(first []byte) []byte {
	b := bytes.Clone(first)
	binary.BigEndian.PutUint32(b[1:], 0x0a0a0a0a)
	return b
}

func TestInACrowdMembersAloneAreAnswered(t *testing.T) {
	leak.Check(t)
	id := memberOf(t, transporttest.Token(), "w", time.Now)
	member, stranger := firstPacket(t, id), firstPacket(t, memberOf(t, transporttest.OtherToken(), "stranger", time.Now))
	d := newDoor(t, id, "127.0.0.2", "127.0.0.3", "127.0.0.4")
	d.answers("127.0.0.4", firstPacket(t, memberOf(t, transporttest.OtherToken(), "stranger", time.Now)))
	d.answers("127.0.0.4", otherVersion(stranger))
	d.spend("anyone", false)
	for range 2 {
		for _, datagram := range [][]byte{stranger, withToken(stranger), otherVersion(stranger)} {
			d.ignores("127.0.0.2", datagram, "127.0.0.3", member)
			d.ignores("127.0.0.2", datagram, "127.0.0.3", withToken(member))
		}
		d.net.known.remember("127.0.0.2") // which is no mark
	}
}

func TestWhereMembersHaveNoMarksASpentHostIsNotAnswered(t *testing.T) {
	leak.Check(t)
	files := &transporttest.Disk{}
	files.Put(t, "w", transporttest.NewAuthority(t, "job", time.Now()), time.Now())
	id := certified(t, files, "w", transporttest.Job)
	d, dial := newDoor(t, id, "127.0.0.2", "127.0.0.3"), firstPacket(t, id)
	d.spend("anyone", false)
	d.answers("127.0.0.2", dial)
	d.answers("127.0.0.2", withToken(dial))
	d.spend("127.0.0.2", true)
	for _, datagram := range [][]byte{dial, withToken(dial), otherVersion(dial)} {
		d.ignores("127.0.0.2", datagram, "127.0.0.3", dial)
	}
	d.net.known.remember("127.0.0.2")
	d.answers("127.0.0.2", dial) // members are there
}

func TestAListenerGivesNoMarkAway(t *testing.T) {
	leak.Check(t)
	id := memberOf(t, transporttest.Token(), "w", time.Now)
	d := newDoor(t, id, "127.0.0.2")
	b := make([]byte, 1500)
	for _, crowd := range []bool{false, true} {
		if crowd {
			d.spend("anyone", false)
		}
		n, err := d.send("127.0.0.2", firstPacket(t, id)).Read(b)
		require.NoError(t, err)
		require.Equal(t, crowd, b[0]&0xf0 == 0xf0, "a Retry packet")
		b[0] &= 0xcf // so that it is read like a dial
		by, ok := dials(b[:n])
		require.True(t, ok)
		require.NotEmpty(t, by)
		require.False(t, identity.MarksOf(id).On(by))
	}
}

func TestACrowdIsToldOnceAndTakesNoRoomFromOtherRefusals(t *testing.T) {
	leak.Check(t)
	book, log := transporttest.NewLogBook()
	id := memberOf(t, transporttest.Token(), "w", time.Now)
	l := listen(t, Config{Identity: id, Logger: log}).(*Listener)
	d := &door{t, l, nil}
	d.spend("anyone", false)
	stranger := firstPacket(t, memberOf(t, transporttest.OtherToken(), "stranger", time.Now))
	for i := range 2 * identity.MaxRefusals {
		require.False(t, l.gate.heeds(stranger, &net.UDPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))}))
	}
	require.Len(t, book.Lines(), 1)
	l.net.refusals.Tell(&net.UDPAddr{IP: net.IPv4(10, 0, 0, 1)}, "a cause", nil)
	require.Len(t, book.Lines(), 2)
}
