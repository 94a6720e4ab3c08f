package bulk

import (
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/places"
	"github.com/weft-project/weft/transport/internal/wire"
)

// maxStrangers is how many connections may be about to prove themselves; each host has an account
// of them, see package places. An honest one is done within a few round trips.
const maxStrangers = 128

// server takes the stripes of the links of one listener. While no link expects any, connections are
// closed unheard.
type server struct {
	m    *maker
	ln   net.Listener
	port uint16

	mu        sync.Mutex
	closed    chan struct{} // closed with mu held
	expected  map[[16]byte]*expectedLink
	strangers *places.Places
}

// expectedLink is a link whose dialler has been told to come.
type expectedLink struct {
	secret [32]byte
	conns  []net.Conn    // by number; nil until it is there
	left   int           // how many are not
	full   chan struct{} // closed when none is missing
}

// Serve listens on the port of at, or on another one if that is taken.
func (m *maker) Serve(at net.Addr) (lane.Server, error) {
	udp, ok := at.(*net.UDPAddr)
	if !ok {
		return nil, fmt.Errorf("transport: no TCP address belongs to %v", at)
	}
	tcp := &net.TCPAddr{IP: udp.IP, Port: udp.Port, Zone: udp.Zone}
	ln, err := net.ListenTCP("tcp", tcp)
	if err != nil {
		tcp.Port = 0
		ln, err = net.ListenTCP("tcp", tcp)
	}
	if err != nil {
		return nil, fmt.Errorf("transport: listen for lane bulk: %w", err)
	}
	s := &server{m: m, ln: ln, port: uint16(ln.Addr().(*net.TCPAddr).Port), closed: make(chan struct{}), expected: map[[16]byte]*expectedLink{},
		strangers: places.New(places.Terms{Most: maxStrangers})}
	go s.accept()
	return s, nil
}

func (s *server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosedLocked() {
		return
	}
	close(s.closed)
	_ = s.ln.Close()
	for _, x := range s.strangers.Under {
		x.End()
	}
}

func (s *server) isClosedLocked() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

func (s *server) Expect(with lane.Peer, offer []byte) ([]byte, func(context.Context) (*lane.End, error), error) {
	offered, err := parseOffer(offer)
	if err != nil {
		return nil, nil, err
	}
	if s.m.local && onThisHost(with.Addr) {
		return nil, nil, errSameHost
	}
	n := min(offered, s.m.stripes)
	e := &expectedLink{secret: with.Secret, conns: make([]net.Conn, n), left: n, full: make(chan struct{})}
	tag := lane.LinkTag(&e.secret)
	s.mu.Lock()
	s.expected[tag] = e
	s.mu.Unlock()
	wait := func(c context.Context) (*lane.End, error) { return s.wait(c, tag, e) }
	return answer{n, s.port}.append(nil), wait, nil
}

func (s *server) wait(c context.Context, tag [16]byte, e *expectedLink) (*lane.End, error) {
	var why error
	select {
	case <-e.full:
	case <-c.Done():
		why = c.Err()
	case <-s.closed:
		why = wire.ErrClosed
	}
	s.mu.Lock()
	delete(s.expected, tag) // nobody is added any more
	s.mu.Unlock()
	if e.left > 0 {
		closeAll(e.conns)
		return nil, fmt.Errorf("transport: %d of %d connections of lane bulk did not come: %w", e.left, len(e.conns), why)
	}
	return newEnd(e.conns), nil
}

// accept takes connections until the server is closed.
func (s *server) accept() {
	for {
		conn, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the connection is gone already, or the system is out of descriptors
			continue
		}
		s.greet(conn)
	}
}

// greet has a connection prove itself, if any is expected.
func (s *server) greet(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.expected) == 0 || s.isClosedLocked() {
		_ = conn.Close()
		return
	}
	mine, gone := s.strangers.Enter(time.Now(), places.AccountOf(conn.RemoteAddr()))
	if gone != nil {
		gone.End()
	}
	if mine == nil {
		_ = conn.Close()
		return
	}
	mine.End = func() { _ = conn.Close() }
	go func() {
		stripe := s.hear(conn)
		s.mu.Lock()
		defer s.mu.Unlock()
		mine.Leave()
		if stripe == nil || mine.Evicted || !s.takeLocked(stripe) {
			_ = conn.Close()
		}
	}()
}

// provenStripe is a connection that has proved to be the link's with that tag.
type provenStripe struct {
	conn   net.Conn
	of     *expectedLink
	tag    [16]byte
	number int
}

// hear lets a connection prove itself, nil if it does not.
func (s *server) hear(tcp net.Conn) *provenStripe {
	_ = tcp.SetDeadline(time.Now().Add(lane.HandshakeTimeout))
	conn := tls.Server(&wide{Conn: tcp}, s.m.tls())
	if err := conn.Handshake(); err != nil {
		if cause := stripeRefused(err); cause != "" {
			s.m.refusals.Tell(tcp.RemoteAddr(), cause, err)
		}
		return nil
	}
	var b [preambleSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return nil
	}
	bound, err := binding(conn)
	if err != nil {
		return nil
	}
	tag, number := [16]byte(b[:16]), int(b[16])
	s.mu.Lock()
	e := s.expected[tag]
	s.mu.Unlock()
	if e == nil || !hmac.Equal(b[17:], lane.Prove(&e.secret, "dialler", number, bound)) {
		s.m.refusals.Tell(tcp.RemoteAddr(), "the peer does not know the link that it names", wire.ErrIdentity)
		return nil
	}
	if _, err := conn.Write(lane.Prove(&e.secret, "listener", number, bound)); err != nil {
		return nil
	}
	_ = tcp.SetDeadline(time.Time{})
	return &provenStripe{conn, e, tag, number}
}

// takeLocked gives a stripe to its link, if that waits for it still.
func (s *server) takeLocked(x *provenStripe) bool {
	e := x.of
	if s.isClosedLocked() || s.expected[x.tag] != e || x.number >= len(e.conns) || e.conns[x.number] != nil {
		return false
	}
	e.conns[x.number] = x.conn
	if e.left--; e.left == 0 {
		close(e.full)
	}
	return true
}

var errSameHost = errors.New("both ends are on one host, which is for lane local")

// onThisHost says whether an address is one of this host's own.
func onThisHost(addr net.Addr) bool {
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return false
	}
	if udp.IP.IsLoopback() {
		return true
	}
	own, _ := net.InterfaceAddrs() // none where it fails
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		ip, ok := a.(*net.IPNet)
		return ok && ip.IP.Equal(udp.IP)
	})
}

// stripeRefused says whose certificate was refused, if a handshake failed for that.
func stripeRefused(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, wire.ErrIdentity):
		return "this worker does not take the peer's certificate"
	case errors.As(err, &op) && op.Op == "remote error" && strings.Contains(err.Error(), "certificate"):
		return identity.RefusedByPeer
	}
	return ""
}
