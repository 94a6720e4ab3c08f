package link

import (
	"context"
	"errors"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/wire"
)

// acceptQueue is how many links may wait for Accept; further ones wait in their set-up.
const acceptQueue = 64

// setUps is how many links may be set up at a time; the diallers of further ones are told to try
// again.
const setUps = 256

// Listener takes the links of peers that dial to one address.
type Listener struct {
	net     *network
	ql      *quic.EarlyListener // gives connections before they have proved who they are
	sock    *socket
	gate    *gate
	lanes   []servedLane
	Pending *quicstream.PendingConns
	queue   chan wire.Link
	slots   chan struct{}      // one for each set-up that is under way
	cancel  context.CancelFunc // ends greet and what it started
	done    chan struct{}      // closed when they have ended
	once    sync.Once
}

func newListener(n *network, s *socket, g *gate, ql *quic.EarlyListener, lanes []servedLane) *Listener {
	c, cancel := context.WithCancel(context.Background())
	l := &Listener{
		net: n, ql: ql, sock: s, gate: g, lanes: lanes, Pending: quicstream.NewPendingConns(), queue: make(chan wire.Link, acceptQueue), slots: make(chan struct{}, setUps),
		cancel: cancel, done: make(chan struct{}),
	}
	go l.greet(c)
	return l
}

// greet sets up the links of the peers whose certificates are accepted.
func (l *Listener) greet(c context.Context) {
	defer close(l.done)
	var under sync.WaitGroup
	defer under.Wait()
	for {
		conn, err := l.ql.Accept(c)
		if err != nil {
			return
		}
		if !l.sock.acquire() {
			return // the socket was closed under the listener, by a failure of the system
		}
		context.AfterFunc(conn.Context(), l.sock.leave)
		under.Go(func() {
			if l.gate.prove(c, conn) {
				l.welcome(c, conn)
			}
		})
	}
}

// welcome sets up the link of a member.
func (l *Listener) welcome(c context.Context, conn *quic.Conn) {
	select {
	case l.slots <- struct{}{}:
		l.setUp(c, conn)
		<-l.slots
	default:
		_ = conn.CloseWithError(quicstream.CodeBusy, "too many links are being set up")
	}
}

// setUp sets up a link and queues it.
func (l *Listener) setUp(c context.Context, conn *quic.Conn) {
	if conn.ConnectionState().TLS.NegotiatedProtocol == identity.InJob(l.net.cfg.Identity, quicstream.ALPN) {
		l.admit(c, conn)
		return
	}
	link, err := l.net.setUpAccepted(c, conn, l.lanes, l.Pending)
	switch {
	case c.Err() != nil && err != nil:
		_ = conn.CloseWithError(quicstream.CodeClosed, "the listener was closed")
		return
	case err != nil:
		_ = conn.CloseWithError(quicstream.CodeBreach, wire.Truncate(err.Error()))
		return
	}
	select {
	case l.queue <- link:
	case <-c.Done():
		_ = link.Close("the listener was closed")
	case <-link.Done():
	}
}

// admit gives a data connection to its link.
func (l *Listener) admit(c context.Context, conn *quic.Conn) {
	c, cancel := context.WithTimeout(c, lane.SetUpTimeout)
	defer cancel()
	stop := context.AfterFunc(c, func() { _ = conn.CloseWithError(quicstream.CodeClosed, "no greeting came") })
	err := l.Pending.Admit(c, conn)
	if !stop() && err == nil {
		err = c.Err()
	}
	if err != nil {
		_ = conn.CloseWithError(quicstream.CodeBreach, wire.Truncate(err.Error()))
	}
	if errors.Is(err, wire.ErrIdentity) {
		l.net.refusals.Tell(conn.RemoteAddr(), "the peer does not know the link that it names", err)
	}
}

// Addr implements [wire.Listener].
func (l *Listener) Addr() string { return l.ql.Addr().String() }

// Accept implements [wire.Listener].
func (l *Listener) Accept(c context.Context) (wire.Link, error) {
	select {
	case link := <-l.queue:
		return link, nil
	default:
	}
	select {
	case link := <-l.queue:
		return link, nil
	case <-l.done:
		return nil, &wire.Error{Op: "accept at", Peer: l.Addr(), Err: wire.ErrClosed}
	case <-c.Done():
		return nil, &wire.Error{Op: "accept at", Peer: l.Addr(), Err: c.Err()}
	}
}

// Close implements [wire.Listener].
func (l *Listener) Close() error {
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
		for _, s := range l.lanes {
			s.discard()
		}
		l.sock.leave()
	})
	return nil
}

// drain closes what quic-go had accepted and greet had not seen.
func (l *Listener) drain() {
	for {
		conn, err := l.ql.Accept(context.Background())
		if err != nil {
			return // closed and empty
		}
		_ = conn.CloseWithError(0, "the listener was closed")
	}
}
