package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/weft-project/weft/internal/accounts"
	"github.com/weft-project/weft/store/internal/door"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/who"
)

// Connections are cheap for who makes them. Until a client has proved something, by a whole command
// or a TLS handshake, it can be closed to make room for another, and it has little time unless it
// is a process of the server's own user. Package door has the rules.

const (
	proofWithin = 5 * time.Second // a client's time to say something, and from there to prove something
	membersPart = 4               // a fourth of the places is kept from guests
	filesPart   = 4               // a fourth of the files that this process may have open is for others than clients
)

var (
	errUnproved = fmt.Errorf("%w: it has said nothing whole within %v", kv.ErrProtocol, proofWithin)
	errCrowded  = fmt.Errorf("%w: there are as many clients as there may be, or half of them are its user's or network's", kv.ErrFull)
)

// attach takes nc over and serves it in a goroutine of its own, unless it is refused.
func (s *Server) attach(nc net.Conn) {
	o := ownerOf(nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nc.Close()
		return
	}
	visit, evicted := s.door.Enter(uint64(s.last+1), o.account(nc.RemoteAddr()), o.ours())
	if visit == nil {
		if !s.crowded {
			s.crowded = true
			s.cfg.Logger.Warn("store refuses clients, as it has as many as it may have", "clients", s.door.Len(), "first refused", nc.RemoteAddr())
		}
		s.counters.refused++
		nc.Close()
		return
	}
	if s.crowded = false; evicted != nil {
		s.evict(evicted)
	}
	s.counters.accepted++
	s.last++
	p := newPeer(s.last, nc, s)
	p.owner, p.visit = o, visit
	s.peers[p.id] = p
	s.wg.Go(func() { s.serve(p) })
}

// evict closes a client that has lost its place.
func (s *Server) evict(v *door.Visitor) {
	p := s.peers[state.ClientID(v.ID)]
	if p == nil {
		return
	}
	s.counters.evicted++
	p.nc.Close()
	s.say(slog.LevelWarn, "", "store closes a client that has proved nothing, to make room for another",
		"client", p.nc.RemoteAddr(), "of", p.owner)
}

// makesRoom closes the oldest client that has proved nothing, and says whether there was one.
func (s *Server) makesRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.door.Evict()
	if v != nil {
		s.evict(v)
	}
	return v != nil
}

// say writes a line that strangers cause, unless they have caused too many, or one that is about
// the same. s.mu is held.
func (s *Server) say(level slog.Level, about, msg string, args ...any) {
	c := context.Background()
	if !s.cfg.Logger.Enabled(c, level) {
		return
	}
	say, unsaid := s.lines.Say(time.Now(), about)
	if !say {
		return
	}
	if unsaid > 0 {
		args = append(args, "unsaid", unsaid)
	}
	s.cfg.Logger.Log(c, level, msg, args...)
}

// prove notes what a client has shown, the first time.
func (s *Server) prove(p *peer, proof door.Proof) error {
	s.mu.Lock()
	let := s.door.Prove(p.visit, proof)
	s.mu.Unlock()
	if !let {
		return errCrowded
	}
	p.proved = true
	return p.nc.SetReadDeadline(time.Time{})
}

// hurry gives a client that has proved nothing its time, unless it may take as long as it likes.
func (s *Server) hurry(p *peer, leisure bool) {
	if !leisure && !p.proved {
		_ = p.nc.SetReadDeadline(time.Now().Add(proofWithin))
	}
}

// patient says whether a client may be silent for longer: PyTorch's before 2.1 have a second
// connection that says nothing, beside one that does.
func (s *Server) patient(p *peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.door.Spoken(p.visit)
}

// overdue is err, unless that is the end of the time that a client has to prove something.
func (p *peer) overdue(err error) error {
	if !p.proved && errors.Is(err, os.ErrDeadlineExceeded) {
		return errUnproved
	}
	return err
}

// account is whom a client's places are counted for.
func (o owner) account(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case o.err == nil:
		return accounts.User(o.uid)
	case ok && errors.Is(o.err, who.ErrElsewhere):
		return accounts.Host(tcp.AddrPort().Addr())
	}
	return "this host"
}
