package simnet

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-project/weft/transport"
)

// end is one end of a link.
type end struct {
	net    *Net
	name   string // the same at both ends: what delays are drawn from
	host   string
	peer   string
	addr   string // what RemoteAddr says
	other  *end
	dialer bool
	done   chan struct{}

	// guarded by Net.mu
	err     error
	opened  uint64 // how many streams this end has opened
	active  int    // how many of them are not finished at the peer
	streams map[*stream]struct{}
	arrived []*stream // not accepted yet
	goodbye *string   // the peer's last words, which wait for the end of a cut
	bell    bell      // for Open and Accept
}

func (e *end) RemoteAddr() string { return e.addr }

func (e *end) Vouches(string, int) error { return nil }

func (e *end) Lanes() []transport.LaneState { return []transport.LaneState{{Name: "sim"}} }

func (e *end) Done() <-chan struct{} { return e.done }

func (e *end) Err() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	return e.err
}

func (e *end) Open(c context.Context) (transport.Stream, error) {
	for {
		s, change, err := e.tryOpen()
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-change:
		case <-c.Done():
			return nil, &transport.Error{Op: "open a stream to", Peer: e.addr, Err: c.Err()}
		}
	}
}

func (e *end) tryOpen() (transport.Stream, <-chan struct{}, error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.err != nil {
		return nil, nil, e.err
	}
	if e.active >= e.net.cfg.MaxStreams {
		return nil, e.bell.wait(), nil
	}
	e.opened++
	e.active++
	here := newStream(e, fmt.Sprintf("%s, stream %d from %s", e.name, e.opened, e.host))
	there := newStream(e.other, here.name)
	here.peer, there.peer = there, here
	here.mine, here.known = true, true
	e.streams[here] = struct{}{}
	return here, nil, nil
}

func (e *end) Accept(c context.Context) (transport.Stream, error) {
	for {
		e.net.mu.Lock()
		err, change := e.err, e.bell.wait()
		if err == nil && len(e.arrived) > 0 {
			s := e.arrived[0]
			e.arrived = e.arrived[1:]
			e.net.mu.Unlock()
			return s, nil
		}
		e.net.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-change:
		case <-c.Done():
			return nil, &transport.Error{Op: "accept a stream from", Peer: e.addr, Err: c.Err()}
		}
	}
}

func (e *end) Close(reason string) error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.closeLocked(reason)
	return nil
}

// closeLocked ends this end and sends word to the other; what was under way is lost.
func (e *end) closeLocked(reason string) {
	if e.err != nil {
		return
	}
	e.goneLocked(transport.ErrClosed, reason, nil)
	n, o := e.net, e.other
	time.AfterFunc(n.delay(e.host, e.peer, e.name+", close"), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.cutLocked(e.host, e.peer) {
			o.goodbye = &reason
			return
		}
		o.goneLocked(transport.ErrPeerClosed, reason, nil)
	})
}

// resumeLocked goes on after a cut.
func (e *end) resumeLocked() {
	if e.goodbye != nil {
		e.goneLocked(transport.ErrPeerClosed, *e.goodbye, nil)
	}
	for s := range e.streams {
		s.out.pumpLocked()
	}
}

// goneLocked ends this end, once.
func (e *end) goneLocked(sentinel error, reason string, cause error) {
	if e.err != nil {
		return
	}
	e.err = &transport.Error{Op: "link with", Peer: e.addr, Err: sentinel, Reason: reason, Cause: cause}
	close(e.done)
	for s := range e.streams {
		s.endLocked(e.err)
		s.bell.ring()
	}
	clear(e.streams)
	e.arrived = nil
	e.bell.ring()
	if e.other.err != nil {
		delete(e.net.links, e)
		delete(e.net.links, e.other)
	}
}
