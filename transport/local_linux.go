package transport

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// localLane makes the local lane. The dialler offers the id of its machine's boot, so that others do not even try; the
// listener answers with the name of an abstract unix socket, which only processes of the same network namespace can
// reach, and which is gone with the process. The dialler connects twice, for the frames and for the ledger of loans. In
// each connection the ends show that they know the link's secret.
type localLane struct{ lookout *lookout }

func newLocalLane() laneMaker { return &localLane{newLookout()} }

func (*localLane) lane() string { return LaneLocal }

const (
	localKey    = 16 // bytes; with it the connections find their link
	localPrefix = "@weft-"
	maxGreeting = 128 // connections that have not shown who they are
)

func (*localLane) offer() ([]byte, error) {
	probe, _, err := shared(1)
	if err != nil {
		return nil, fmt.Errorf("this process has no memory to share: %w", err)
	}
	_ = probe.buf.Release() // the one of Alloc
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	return bytes.TrimSpace(id), nil
}

func (l *localLane) serve(net.Addr) (laneServer, error) {
	boot, err := l.offer()
	if err != nil {
		return nil, err
	}
	name := make([]byte, 16)
	if _, err := rand.Read(name); err != nil {
		return nil, err
	}
	addr := &net.UnixAddr{Net: "unix", Name: localPrefix + hex.EncodeToString(name)}
	ul, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, err
	}
	s := &localServer{lane: l, boot: boot, name: addr.Name, l: ul, waiting: map[[localKey]byte]*localWait{}, greeting: map[*net.UnixConn]bool{}}
	go s.accept()
	return s, nil
}

func (l *localLane) join(c context.Context, with laneWith, answer []byte) (*laneEnd, error) {
	if len(answer) < localKey || !strings.HasPrefix(string(answer[localKey:]), localPrefix) || len(answer) > localKey+100 {
		return nil, frameErr("answer", "a key and the name of a socket", "%d bytes", len(answer))
	}
	key, name := answer[:localKey], string(answer[localKey:])
	var conns [2]*net.UnixConn
	for role := range conns {
		var err error
		if conns[role], err = l.connect(c, with.secret, key, byte(role), name); err != nil {
			closeConns(conns)
			return nil, err
		}
	}
	return l.end(conns)
}

// connect makes one connection.
func (l *localLane) connect(c context.Context, secret [32]byte, key []byte, role byte, name string) (*net.UnixConn, error) {
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

// end makes an end of the lane of its two connections, which it takes over.
func (l *localLane) end(conns [2]*net.UnixConn) (*laneEnd, error) {
	const room = 1 << 20 // the system may give less
	_ = conns[0].SetWriteBuffer(room)
	eager, err := newEagerConn(conns[0], l.lookout)
	if err != nil {
		closeConns(conns)
		return nil, err
	}
	return &laneEnd{
		conduit:   &localConduit{eager},
		newHauler: func(env laneEnv) hauler { return newLocalHauler(env, conns[1]) },
		drop:      func() { closeConns(conns) },
	}, nil
}

func closeConns(conns [2]*net.UnixConn) {
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// localServer is the lane at one listener.
type localServer struct {
	lane *localLane
	boot []byte
	name string
	l    *net.UnixListener

	mu       sync.Mutex
	closed   bool
	waiting  map[[localKey]byte]*localWait
	greeting map[*net.UnixConn]bool // strangers yet
}

// localWait is a link whose dialler may connect. The server's mu guards conns.
type localWait struct {
	secret [32]byte
	conns  [2]*net.UnixConn
	done   chan struct{} // closed when both are there, or the server is closed
}

func (w *localWait) whole() bool { return w.conns[0] != nil && w.conns[1] != nil }

func (s *localServer) expect(with laneWith, offer []byte) ([]byte, func(context.Context) (*laneEnd, error), error) {
	if !bytes.Equal(offer, s.boot) {
		return nil, nil, errors.New("the peer is on another host")
	}
	var key [localKey]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, nil, err
	}
	w := &localWait{secret: with.secret, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, net.ErrClosed
	}
	s.waiting[key] = w
	return append(key[:], s.name...), func(c context.Context) (*laneEnd, error) { return s.wait(c, key, w) }, nil
}

func (s *localServer) wait(c context.Context, key [localKey]byte, w *localWait) (*laneEnd, error) {
	select {
	case <-w.done:
	case <-c.Done():
	}
	s.mu.Lock()
	delete(s.waiting, key)
	whole := w.whole() && c.Err() == nil
	s.mu.Unlock()
	if !whole {
		closeConns(w.conns)
		return nil, errors.New("the dialler did not connect")
	}
	return s.lane.end(w.conns)
}

func (s *localServer) close() {
	_ = s.l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for conn := range s.greeting {
		_ = conn.Close()
	}
	for _, w := range s.waiting {
		if !w.whole() {
			close(w.done)
		}
	}
	clear(s.waiting)
}

func (s *localServer) accept() {
	for {
		conn, err := s.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no descriptor is left, or the like
			continue
		}
		s.mu.Lock()
		if s.closed || len(s.greeting) >= maxGreeting {
			s.mu.Unlock()
			_ = conn.Close()
			continue
		}
		s.greeting[conn] = true
		s.mu.Unlock()
		go s.greet(conn)
	}
}

// greet finds out to which link a connection belongs.
func (s *localServer) greet(conn *net.UnixConn) {
	_ = conn.SetDeadline(time.Now().Add(laneTimeout))
	key, role, err := greetDialler(conn, func(key [localKey]byte) ([32]byte, bool) {
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
	delete(s.greeting, conn)
	w := s.waiting[key]
	if err != nil || w == nil || w.conns[role] != nil {
		_ = conn.Close()
		return
	}
	if w.conns[role] = conn; w.whole() {
		close(w.done)
	}
}
