package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
)

const quicRoom = datagramMost

// slots are what quic-go reads into.
func slots(n, room, words int) []ipv4.Message {
	ms := make([]ipv4.Message, n)
	for i := range ms {
		ms[i] = ipv4.Message{Buffers: [][]byte{make([]byte, room)}, OOB: make([]byte, words)}
	}
	return ms
}

// word is one of the system's words on a datagram.
func word(level, kind int, body []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(body)))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(len(body))))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(kind))
	copy(b[unix.CmsgLen(0):], body)
	return b
}

func sizeWord(n int) []byte {
	return word(unix.IPPROTO_UDP, unix.UDP_GRO, binary.NativeEndian.AppendUint32(nil, uint32(n)))
}

// sends is what one sender sends with one call: datagrams of one length, the last perhaps shorter.
type sends struct {
	bytes []byte
	size  int // of a datagram; 0: one that may be empty
	ecn   byte
}

// datagrams are what a reader sees that has all joined ones cut, and room for so many bytes.
func (x sends) datagrams(room int) (all [][]byte) {
	if x.size == 0 {
		return [][]byte{x.bytes[:min(len(x.bytes), room)]}
	}
	for b := x.bytes; len(b) > 0; b = b[min(x.size, len(b)):] {
		all = append(all, b[:min(x.size, len(b), room)])
	}
	return all
}

func randomSends(r *rand.Rand) sends {
	x := sends{ecn: byte(r.IntN(4))}
	around := func(n int) int { return n - 1 + r.IntN(3) }
	length := around([]int{1, 40, 1280, quicRoom, 2000}[r.IntN(5)])
	if r.IntN(2) == 0 { // a train, of as many as the system sends with one call, or fewer
		x.size = max(length, 1)
		most := min(64, 60<<10/x.size)
		length = x.size*(2+r.IntN(most-1)) - r.IntN(x.size)
	}
	x.bytes = make([]byte, length)
	for i := range x.bytes {
		x.bytes[i] = byte(r.Uint32())
	}
	return x
}

// family is a version of IP, with its names for one and the same.
type family struct {
	network                  string
	loopback                 net.IP
	level, tos, tosIn, where int
}

var families = []family{
	{"udp4", net.IPv4(127, 0, 0, 1), unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVTOS, unix.IP_PKTINFO},
	{"udp6", net.IPv6loopback, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS, unix.IPV6_RECVPKTINFO},
}

// words are what the sender says to the system.
func (x sends) words(f family) []byte {
	tos := word(f.level, f.tos, []byte{x.ecn, 0, 0, 0})
	if x.size > 0 {
		tos = append(tos, word(unix.IPPROTO_UDP, unix.UDP_SEGMENT, binary.NativeEndian.AppendUint16(nil, uint16(x.size)))...)
	}
	return tos
}

func (x sends) send(f family, from *net.UDPConn, to *net.UDPAddr) error {
	_, _, err := from.WriteMsgUDP(x.bytes, x.words(f), to)
	return err
}

// wideSocket is a socket on all addresses that asks for the words that quic-go asks for.
func wideSocket(t testing.TB, f family) (*net.UDPConn, *net.UDPAddr) {
	u, err := net.ListenUDP(f.network, &net.UDPAddr{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.Close() })
	raw, err := u.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), f.level, f.tosIn, 1), unix.SetsockoptInt(int(fd), f.level, f.where, 1))
	}))
	require.NoError(t, err)
	require.NoError(t, u.SetReadDeadline(time.Now().Add(10*time.Second)))
	return u, &net.UDPAddr{IP: f.loopback, Port: u.LocalAddr().(*net.UDPAddr).Port}
}

// TestJoinedDatagramsReachTheReaderAsThoseThatCameAlone compares with a socket that joins nothing.
func TestJoinedDatagramsReachTheReaderAsThoseThatCameAlone(t *testing.T) {
	for _, f := range families {
		t.Run(f.network, func(t *testing.T) { joinedAsAlone(t, f) })
	}
}

func joinedAsAlone(t *testing.T, f family) {
	leak.Check(t)
	trainsSeen := 0
	for seed := range uint64(soak.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 3))
		joined, atJoined := wideSocket(t, f)
		apart, atApart := wideSocket(t, f)
		eager := eagerSocket(joined, nil, nil).(*eagerUDP)
		require.NotNil(t, eager.joined, "this system joins datagrams")
		var senders []*net.UDPConn
		for range 1 + r.IntN(3) {
			u, err := net.ListenUDP(f.network, &net.UDPAddr{IP: f.loopback})
			require.NoError(t, err)
			defer u.Close()
			senders = append(senders, u)
		}
		for range 10 {
			var want [][]byte
			for len(want) < 20 {
				x, from := randomSends(r), senders[r.IntN(len(senders))]
				require.NoError(t, x.send(f, from, atJoined))
				require.NoError(t, x.send(f, from, atApart))
				want = append(want, x.datagrams(quicRoom)...)
			}
			plain := ipv4.NewPacketConn(apart)
			for k := 0; k < len(want); {
				ms := slots(1+r.IntN(batch), quicRoom, 128)
				n, err := eager.ReadBatch(ms, 0)
				require.NoError(t, err)
				for _, m := range ms[:n] {
					p := slots(1, quicRoom, 128)
					_, err := plain.ReadBatch(p, 0)
					require.NoError(t, err)
					require.Equal(t, fmt.Sprint(p[0].Addr), fmt.Sprint(m.Addr))
					require.True(t, bytes.Equal(want[k], m.Buffers[0][:m.N]), "datagram %d: %d bytes of %d", k, m.N, len(want[k]))
					require.Equal(t, p[0].N, m.N)
					require.Equal(t, p[0].OOB[:p[0].NN], m.OOB[:m.NN])
					require.Equal(t, p[0].Flags, m.Flags)
					k++
				}
			}
			for _, m := range eager.joined.room {
				if m.N > quicRoom+1024 {
					trainsSeen++
				}
			}
		}
	}
	require.Positive(t, trainsSeen, "some came joined")
}

func TestOfATrainOnlyWhatIsHeededIsGivenOut(t *testing.T) {
	leak.Check(t)
	f := families[0]
	socket, at := wideSocket(t, f)
	from, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer from.Close()
	heeded := func(b []byte, _ net.Addr) bool { return len(b) > 0 && b[0] < 100 }
	eager := eagerSocket(socket, heeded, nil).(*eagerUDP)
	r := rand.New(rand.NewPCG(1, 5))
	for range soak.Cases(50) {
		x := randomSends(r)
		want := slices.DeleteFunc(x.datagrams(quicRoom), func(b []byte) bool { return !heeded(b, nil) })
		require.NoError(t, x.send(f, from, at))
		last := sends{bytes: []byte("!")} // something to wait for
		require.NoError(t, last.send(f, from, at))
		for _, b := range append(want, last.bytes) {
			ms := slots(1, quicRoom, 128)
			n, err := eager.ReadBatch(ms, 0)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.True(t, bytes.Equal(b, ms[0].Buffers[0][:ms[0].N]))
		}
	}
}

// TestTrainsAreCutWhereTheirWordsSay gives a dumb reader's answer for trains made up.
func TestTrainsAreCutWhereTheirWordsSay(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		r := rand.New(rand.NewPCG(seed, 4))
		room, words := []int{1, 100, quicRoom}[r.IntN(3)], []int{0, 23, 24, 55, 56, 57, 128}[r.IntN(7)]
		tos, info := word(unix.IPPROTO_IP, unix.IP_TOS, []byte{2}), word(unix.IPPROTO_IP, unix.IP_PKTINFO, make([]byte, 12))
		own := append(bytes.Clone(tos), info...)
		fits := own
		if words < len(own) {
			fits = tos
		}
		if words < len(tos) {
			fits = nil
		}
		waiting := newTrains(batch)
		waiting.all = waiting.room[:1+r.IntN(batch)]
		var want [][]byte
		for i := range waiting.all {
			m, x := &waiting.all[i], randomSends(r)
			m.N, m.Addr = copy(m.Buffers[0], x.bytes), &net.UDPAddr{Port: i}
			said := bytes.Clone(own)
			if x.size > 0 {
				said = [][]byte{append(sizeWord(x.size), own...), append(bytes.Clone(own), sizeWord(x.size)...), append(append(bytes.Clone(tos), sizeWord(x.size)...), info...)}[r.IntN(3)]
			}
			m.NN = copy(m.OOB, said)
			want = append(want, x.datagrams(trainBytes)...)
		}
		for len(want) > 0 {
			ms := slots(1+r.IntN(10), room, words)
			n := waiting.give(ms)
			require.Equal(t, min(len(ms), len(want)), n)
			for _, m := range ms[:n] {
				require.True(t, bytes.Equal(want[0][:min(room, len(want[0]))], m.Buffers[0][:m.N]))
				require.Equal(t, len(want[0]) > room, m.Flags&syscall.MSG_TRUNC != 0)
				require.True(t, bytes.Equal(fits, m.OOB[:m.NN]), "%d bytes of %d", m.NN, words)
				require.Equal(t, len(fits) < len(own), m.Flags&syscall.MSG_CTRUNC != 0)
				want = want[1:]
			}
		}
		require.Zero(t, waiting.give(slots(1, room, words)))
	}
}

// FuzzTrains has any words said of a train: nothing is lost or made up, and nothing hangs.
func FuzzTrains(f *testing.F) {
	f.Add([]byte("some bytes"), sizeWord(3))
	f.Add([]byte{}, sizeWord(0))
	f.Add([]byte("some bytes"), sizeWord(-1))
	f.Add([]byte("some bytes"), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, train, oob []byte) {
		if len(train) > trainBytes || len(oob) > trainWords {
			return
		}
		waiting := newTrains(1)
		waiting.all = waiting.room
		m := &waiting.all[0]
		m.N, m.NN = copy(m.Buffers[0], train), copy(m.OOB, oob)
		var got []byte
		ms := slots(1, trainBytes, trainWords)
		for waiting.give(ms) > 0 {
			got = append(got, ms[0].Buffers[0][:ms[0].N]...)
			require.LessOrEqual(t, ms[0].NN, len(oob))
		}
		require.True(t, bytes.Equal(train, got))
	})
}
