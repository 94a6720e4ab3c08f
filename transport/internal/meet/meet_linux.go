package meet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/places"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Lanes between processes of one host meet at an abstract unix socket, which only processes of the
// same network namespace can reach, and which is gone with the process. The listener lets processes
// of its own user in, and of root. The dialler gets the socket's name and a key, and connects as
// often as the lane has roles. In each connection the ends show that they know the link's secret.

// The answer of a [Server] is a key, and the name of its socket.
const (
	KeySize     = 16       // bytes; with it the connections find their link
	Prefix      = "@weft-" // of an abstract socket's name
	maxAnswer   = KeySize + 100
	MaxRoles    = 2   // connections of a lane
	MaxGreeting = 128 // connections that have not shown who they are; each process has an account of them
)

// BootID is the machine's, since it was started.
func BootID() ([]byte, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return []byte(strings.TrimSpace(string(id))), err
}

// Join makes the dialler's connections, with the server that gave the answer.
func Join(c context.Context, secret [32]byte, answer []byte, roles int) (conns [MaxRoles]*net.UnixConn, err error) {
	if len(answer) < KeySize || !strings.HasPrefix(string(answer[KeySize:]), Prefix) || len(answer) > maxAnswer {
		return conns, wire.FrameErr("answer", "a key and the name of a socket", "%d bytes", len(answer))
	}
	key, name := answer[:KeySize], string(answer[KeySize:])
	for role := range roles {
		if conns[role], err = joinOnce(c, secret, key, byte(role), name); err != nil {
			CloseConns(conns)
			return conns, err
		}
	}
	return conns, nil
}

func joinOnce(c context.Context, secret [32]byte, key []byte, role byte, name string) (*net.UnixConn, error) {
	var d net.Dialer
	nc, err := d.DialContext(c, "unix", name)
	if err != nil {
		return nil, fmt.Errorf("the peer is not in this network namespace: %w", err)
	}
	conn := nc.(*net.UnixConn)
	stop := context.AfterFunc(c, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = greetServer(conn, secret, key, role)
	if !stop() && err == nil {
		err = context.Cause(c)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// CloseConns closes those that there are.
func CloseConns(conns [MaxRoles]*net.UnixConn) {
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// Server is where diallers come to at one listener.
type Server struct {
	roles int
	name  string
	l     *net.UnixListener

	mu        sync.Mutex
	closed    bool
	waiting   map[[KeySize]byte]*awaitedConns
	strangers *places.Places
	refusals  *identity.Refusals // may be nil
}

// awaitedConns are those of a link whose dialler may connect. The meeting's mu guards conns.
type awaitedConns struct {
	secret [32]byte
	conns  [MaxRoles]*net.UnixConn
	have   int
	done   chan struct{} // closed when all are there, or the meeting is closed
}

// NewServer listens at a socket of its own, for lanes with that many roles.
func NewServer(roles int) (*Server, error) {
	name := make([]byte, 16)
	if _, err := rand.Read(name); err != nil {
		return nil, err
	}
	addr := &net.UnixAddr{Net: "unix", Name: Prefix + hex.EncodeToString(name)}
	ul, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{roles: roles, name: addr.Name, l: ul, waiting: map[[KeySize]byte]*awaitedConns{}, strangers: places.New(places.Terms{Most: MaxGreeting})}
	go s.accept()
	return s, nil
}

// Expect gives the answer for a dialler, and what waits for its connections.
func (s *Server) Expect(secret [32]byte) ([]byte, func(context.Context) ([MaxRoles]*net.UnixConn, error), error) {
	var key [KeySize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, nil, err
	}
	w := &awaitedConns{secret: secret, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, net.ErrClosed
	}
	s.waiting[key] = w
	return append(key[:], s.name...), func(c context.Context) ([MaxRoles]*net.UnixConn, error) { return s.wait(c, key, w) }, nil
}

func (s *Server) wait(c context.Context, key [KeySize]byte, w *awaitedConns) (conns [MaxRoles]*net.UnixConn, err error) {
	select {
	case <-w.done:
	case <-c.Done():
	}
	s.mu.Lock()
	delete(s.waiting, key)
	whole := w.have == s.roles && c.Err() == nil
	s.mu.Unlock()
	if !whole {
		CloseConns(w.conns)
		return conns, errors.New("the dialler did not connect")
	}
	return w.conns, nil
}

// Close ends what listens. Connections that were given out live on; waits fail.
func (s *Server) Close() {
	_ = s.l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, x := range s.strangers.Under {
		x.End()
	}
	for _, w := range s.waiting {
		if w.have < s.roles {
			close(w.done)
		}
	}
	clear(s.waiting)
}

func (s *Server) accept() {
	for {
		conn, err := s.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no descriptor is left, or the like
			continue
		}
		if mine := s.admit(conn); mine != nil {
			go s.greet(conn, mine)
		} else {
			_ = conn.Close()
		}
	}
}

// admit gives a place to a connection, nil where its process belongs to another user.
func (s *Server) admit(conn *net.UnixConn) *places.Place {
	pid, err := trusted(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.refusals != nil {
		s.refusals.Tell(&net.UnixAddr{Name: "a process of this host"}, "the local lane is for one user", err)
	}
	if err != nil || s.closed {
		return nil
	}
	mine, gone := s.strangers.Enter(time.Now(), strconv.Itoa(pid))
	if gone != nil {
		gone.End()
	}
	if mine != nil {
		mine.End = func() { _ = conn.Close() }
	}
	return mine
}

// trusted asks the kernel which process connected, and fails where it is neither of this user nor
// of root.
func trusted(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return 0, err
	}
	if own := os.Geteuid(); cred.Uid != 0 && int(cred.Uid) != own {
		return 0, fmt.Errorf("%w: user %d, process %d; this worker is of user %d", wire.ErrIdentity, cred.Uid, cred.Pid, own)
	}
	return int(cred.Pid), nil
}

// TellTo says who hears of refused processes.
func (s *Server) TellTo(r *identity.Refusals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = r
}

// greet finds out to which link a connection belongs.
func (s *Server) greet(conn *net.UnixConn, mine *places.Place) {
	_ = conn.SetDeadline(time.Now().Add(lane.JoinTimeout))
	key, role, err := greetDialler(conn, func(key [KeySize]byte) ([32]byte, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w := s.waiting[key]; w != nil {
			return w.secret, true
		}
		return [32]byte{}, false
	})
	_ = conn.SetDeadline(time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	mine.Leave()
	w := s.waiting[key]
	if err != nil || mine.Evicted || w == nil || int(role) >= s.roles || w.conns[role] != nil {
		_ = conn.Close()
		return
	}
	w.conns[role] = conn
	if w.have++; w.have == s.roles {
		close(w.done)
	}
}
