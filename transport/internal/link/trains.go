//go:build unix

package link

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	trainBytes = 64 << 10 // the longest train: no datagram is longer
	trainWords = 256      // bytes of what the system says of a train
)

// trains are datagrams as the system hands them over where it may join those of one sender that
// come one after the other: in trains of one length each, of which the last may be shorter. What a
// reader has no room for waits here. One goroutine uses it.
type trains struct {
	all  []ipv4.Message // as they were read
	at   int            // bytes of the first that were given out
	size int            // of a datagram of the first; 0: it was not looked at yet
	room []ipv4.Message // all of what all may hold
}

func newTrains(n int) *trains {
	t := &trains{room: make([]ipv4.Message, n)}
	for i := range t.room {
		t.room[i] = ipv4.Message{Buffers: [][]byte{make([]byte, trainBytes)}, OOB: make([]byte, trainWords)}
	}
	return t
}

// refill has more trains read, when none waits.
func (t *trains) refill(from *ipv4.PacketConn, flags int) error {
	for i := range t.room {
		t.room[i].OOB = t.room[i].OOB[:trainWords]
	}
	n, err := from.ReadBatch(t.room, flags)
	if err != nil {
		return err
	}
	t.all = t.room[:n]
	return nil
}

// many says whether more has been read than a datagram or two.
func (t *trains) many() bool {
	n := 0
	for i := range t.all {
		n += t.all[i].N
	}
	return n > 2*datagramMost
}

// give fills ms with datagrams that wait, and says how many they are. Each is as it would be
// without the joining: its bytes, as many as there is room for, and what the system says of it.
func (t *trains) give(ms []ipv4.Message) (n int) {
	for n < len(ms) && len(t.all) > 0 {
		t.giveOne(&ms[n])
		n++
	}
	return n
}

func (t *trains) giveOne(m *ipv4.Message) {
	train := &t.all[0]
	if t.size == 0 {
		train.OOB, t.size = cutSize(train.OOB[:train.NN])
		if t.size == 0 {
			t.size = trainBytes
		}
	}
	end := min(t.at+t.size, train.N)
	m.Addr, m.Flags = train.Addr, train.Flags
	if m.N = copy(m.Buffers[0], train.Buffers[0][t.at:end]); m.N < end-t.at {
		m.Flags |= syscall.MSG_TRUNC
	}
	if m.NN = copyWords(m.OOB, train.OOB); m.NN < len(train.OOB) {
		m.Flags |= syscall.MSG_CTRUNC
	}
	if t.at = end; t.at == train.N {
		t.all, t.at, t.size = t.all[1:], 0, 0
	}
}

// cutSize takes out of what the system says of a train how long each of its datagrams is. 0: it is
// no train.
func cutSize(oob []byte) (rest []byte, size int) {
	for at := oob; len(at) > 0; {
		h, body, next, err := unix.ParseOneSocketControlMessage(at)
		if err != nil {
			break // for who reads it
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == udpGRO && len(body) == 4 {
			size = int(binary.NativeEndian.Uint32(body))
			return append(oob[:len(oob)-len(at)], next...), size
		}
		at = next
	}
	return oob, 0
}

// copyWords copies those of the system's words that fit. Half a word would be an error to quic-go.
func copyWords(to, oob []byte) int {
	if len(oob) <= len(to) {
		return copy(to, oob)
	}
	n := 0
	for at := oob; len(at) > 0; {
		_, _, next, err := unix.ParseOneSocketControlMessage(at)
		if err != nil || len(oob)-len(next) > len(to) {
			break
		}
		n, at = len(oob)-len(next), next
	}
	return copy(to, oob[:n])
}
