package quicstream

import (
	"errors"
	"time"

	"github.com/quic-go/quic-go"
)

// What tests of links need of a channel's inside.
const (
	EagerCount   = eagerCount
	EagerMost    = eagerMost
	GreetingSize = greetingSize
	Urgency      = urgency
	WindowLeast  = windowLeast
)

var (
	Binding  = binding
	EagerFor = eagerFor
)

// Beside is the connection for tensors alone, nil while there is none.
func (h *Channel) Beside() *quic.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.beside
}

// Held says what a channel holds.
func (h *Channel) Held() (out, wanted, arrived, count int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.out) + len(h.window.waits), len(h.wanted), len(h.arrived), h.count, h.bytes + h.window.used
}

// Narrow gives a channel the least window. used is told, before every decision, how much of it is
// in use.
func (h *Channel) Narrow(used func(int64)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = func() int64 { // asked under the lock
		used(h.window.used)
		return windowLeast
	}
}

// Writes says whether something of a transfer has been written.
func (h *Channel) Writes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.out {
		return x.written > 0
	}
	return false
}

// MayDial lets a channel dial anew. It fails where there is a connection already.
func (h *Channel) MayDial() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beside != nil {
		return errors.New("it has been dialled, though it was tried lately")
	}
	h.dialAfter = time.Time{}
	return nil
}

// Break says to the peer what breaks the rules.
func (h *Channel) Break() { _ = h.env.Say(nil) }

// Len is how many links are known.
func (s *PendingConns) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.has)
}

// Reserve expects the connection of one link alone, which is not set up. taken says whether it has
// come.
func (s *PendingConns) Reserve(link *quic.Conn, tag [16]byte, secret [32]byte) (attach func(func(*quic.Conn)), taken func() bool) {
	st := &pendingConn{link: link, secret: secret}
	s.mu.Lock()
	s.has = map[[16]byte]*pendingConn{tag: st}
	s.mu.Unlock()
	return func(use func(*quic.Conn)) { s.Attach(st, use) }, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return st.conn != nil
	}
}
