package transport

import (
	"context"
	"sync"

	"github.com/quic-go/quic-go"
)

// acceptQueue is how many links may wait for Accept; further ones wait in quic-go, which bounds them.
const acceptQueue = 64

type quicListener struct {
	net    *quicNet
	ql     *quic.Listener
	sock   *socket
	queue  chan Link
	cancel context.CancelFunc // ends greet
	done   chan struct{}      // closed when greet has ended
	once   sync.Once
}

func newQUICListener(n *quicNet, s *socket, ql *quic.Listener) *quicListener {
	c, cancel := context.WithCancel(context.Background())
	l := &quicListener{net: n, ql: ql, sock: s, queue: make(chan Link, acceptQueue), cancel: cancel, done: make(chan struct{})}
	go l.greet(c)
	return l
}

// greet tells every peer whose certificate was accepted that it was, and queues its link.
func (l *quicListener) greet(c context.Context) {
	defer close(l.done)
	for {
		conn, err := l.ql.Accept(c)
		if err != nil {
			return
		}
		if !l.sock.join() {
			return // the socket was closed under the listener, by a failure of the system
		}
		context.AfterFunc(conn.Context(), l.sock.leave)
		link := newQUICLink(l.net, conn, conn.RemoteAddr().String())
		if err := hello(conn); err != nil {
			_ = link.Close("no hello")
			continue
		}
		select {
		case l.queue <- link:
		case <-c.Done():
			_ = link.Close("the listener was closed")
			return
		}
	}
}

// hello never waits: the peer allows one such stream, and a byte needs no credit.
func hello(conn *quic.Conn) error {
	s, err := conn.OpenUniStream()
	if err != nil {
		return err
	}
	if _, err := s.Write([]byte{helloByte}); err != nil {
		return err
	}
	return s.Close()
}

func (l *quicListener) Addr() string { return l.ql.Addr().String() }

func (l *quicListener) Accept(c context.Context) (Link, error) {
	select {
	case link := <-l.queue:
		return link, nil
	default:
	}
	select {
	case link := <-l.queue:
		return link, nil
	case <-l.done:
		return nil, &Error{Op: "accept at", Peer: l.Addr(), Err: ErrClosed}
	case <-c.Done():
		return nil, &Error{Op: "accept at", Peer: l.Addr(), Err: c.Err()}
	}
}

func (l *quicListener) Close() error {
	l.once.Do(func() {
		_ = l.ql.Close() // never fails
		l.cancel()
		<-l.done
		for {
			select {
			case link := <-l.queue:
				_ = link.Close("the listener was closed")
				continue
			default:
			}
			break
		}
		l.drain()
		l.sock.leave()
	})
	return nil
}

// drain closes what quic-go had accepted and greet had not seen.
func (l *quicListener) drain() {
	for {
		conn, err := l.ql.Accept(context.Background())
		if err != nil {
			return // closed and empty
		}
		_ = conn.CloseWithError(0, "the listener was closed")
	}
}
