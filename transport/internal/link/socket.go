package link

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
)

// socket is a UDP socket with what uses it: a listener, and links. The last to leave closes it.
type socket struct {
	pc net.PacketConn
	tr *quic.Transport

	mu   sync.Mutex
	uses int
}

// newSocket gives its first use to the caller. ids chooses those of connections; nil leaves it to
// quic-go. gate is for who dials to the socket; nil where nobody may. calls counts what goes first.
func newSocket(pc net.PacketConn, ids quic.ConnectionIDGenerator, g *gate, calls *atomic.Uint64) *socket {
	if u, ok := pc.(*net.UDPConn); ok {
		var heeds heed
		if g != nil {
			heeds = g.heeds
		}
		pc = eagerSocket(u, heeds, calls)
	}
	s := &socket{pc: pc, uses: 1, tr: &quic.Transport{Conn: pc, ConnectionIDGenerator: ids}}
	if g != nil {
		s.tr.ConnContext, s.tr.VerifySourceAddress = g.connContext, g.verify
	}
	return s
}

// acquire adds a use; false when the socket is closed already.
func (s *socket) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses == 0 {
		return false
	}
	s.uses++
	return true
}

// leave drops a use.
func (s *socket) leave() {
	s.mu.Lock()
	s.uses--
	last := s.uses == 0
	s.mu.Unlock()
	if last {
		_ = s.tr.Close() // fails only where the socket is gone already
		_ = s.pc.Close()
	}
}
