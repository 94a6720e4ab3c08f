package simnet

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weft-project/weft/transport"
)

// host is one life of a host.
type host struct {
	net         *Net
	name, token string
	life        int
}

var _ transport.Network = (*host)(nil)

// aliveLocked fails when the host was killed.
func (h *host) aliveLocked(op, addr string) error {
	if h.net.lives[h.name] != h.life {
		return &transport.Error{Op: op, Peer: addr, Err: transport.ErrClosed, Reason: "the host was killed"}
	}
	return nil
}

// Listen ignores the host part of addr: the address is always "name:port".
func (h *host) Listen(c context.Context, addr string) (transport.Listener, error) {
	if h.net.bad != nil {
		return nil, h.net.bad
	}
	if err := c.Err(); err != nil {
		return nil, &transport.Error{Op: "listen", Peer: addr, Err: err}
	}
	_, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("simnet: listen at %s: %w", addr, err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("simnet: listen at %s: %w", addr, err)
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if err := h.aliveLocked("listen", addr); err != nil {
		return nil, err
	}
	at := func() string { return net.JoinHostPort(h.name, strconv.FormatUint(port, 10)) }
	for port == 0 || service == "0" && h.net.listeners[at()] != nil {
		h.net.ports[h.name]++
		port = uint64(40000 + h.net.ports[h.name])
	}
	if h.net.listeners[at()] != nil {
		return nil, fmt.Errorf("simnet: listen at %s: the address is in use", at())
	}
	l := &listener{host: h, addr: at()}
	h.net.listeners[l.addr] = l
	return l, nil
}

func (h *host) Dial(c context.Context, addr string) (transport.Link, error) {
	n := h.net
	if n.bad != nil {
		return nil, n.bad
	}
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &transport.Error{Op: "dial", Peer: addr, Err: transport.ErrUnreachable, Cause: err}
	}
	n.mu.Lock()
	w := way{h.name, to}
	n.dials[w]++
	nth := n.dials[w]
	n.mu.Unlock()
	there := n.delay(h.name, to, fmt.Sprintf("dial %d", nth))
	back := n.delay(to, h.name, fmt.Sprintf("dial %d", nth))
	if err := pause(c, there+back); err != nil {
		return nil, &transport.Error{Op: "dial", Peer: addr, Err: transport.ErrUnreachable, Cause: err}
	}
	link, err, silent := h.connect(to, addr, nth)
	if silent {
		if err := pause(c, max(n.cfg.Detect-there-back, 0)); err != nil {
			return nil, &transport.Error{Op: "dial", Peer: addr, Err: transport.ErrUnreachable, Cause: err}
		}
		return nil, &transport.Error{Op: "dial", Peer: addr, Err: transport.ErrUnreachable, Reason: "no answer"}
	}
	return link, err
}

// connect makes the two ends. silent means that nobody answers.
func (h *host) connect(to, addr string, nth uint64) (link transport.Link, err error, silent bool) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := h.aliveLocked("dial", addr); err != nil {
		return nil, err, false
	}
	l := n.listeners[addr]
	if l == nil || n.cutLocked(h.name, to) {
		return nil, nil, true
	}
	if l.host.token != h.token {
		if _, told := n.refused[way{h.name, to}]; !told {
			n.refused[way{h.name, to}] = struct{}{}
			n.cfg.Logger.Warn("weft: refused a peer", "peer", h.name, "at", addr, "cause", "the tokens differ")
		}
		return nil, &transport.Error{Op: "dial", Peer: addr, Err: transport.ErrIdentity, Reason: "the tokens differ"}, false
	}
	name := fmt.Sprintf("link %d of %s", nth, h.name)
	here := &end{net: n, name: name, host: h.name, peer: to, addr: addr, dialer: true}
	there := &end{net: n, name: name, host: to, peer: h.name, addr: h.name}
	here.other, there.other = there, here
	here.start()
	there.start()
	here.Start()
	there.Start()
	n.links[here] = struct{}{}
	l.queue = append(l.queue, there)
	l.bell.ring()
	return here, nil, false
}

// pause waits.
func pause(c context.Context, d time.Duration) error {
	if err := c.Err(); err != nil || d <= 0 {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.Done():
		return c.Err()
	}
}

type listener struct {
	host *host
	addr string

	// guarded by Net.mu
	queue  []*end
	closed bool
	bell   bell
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Accept(c context.Context) (transport.Link, error) {
	n := l.host.net
	for {
		n.mu.Lock()
		if len(l.queue) > 0 {
			e := l.queue[0]
			l.queue = l.queue[1:]
			n.mu.Unlock()
			return e, nil
		}
		closed, change := l.closed, l.bell.rung()
		n.mu.Unlock()
		if closed {
			return nil, &transport.Error{Op: "accept at", Peer: l.addr, Err: transport.ErrClosed}
		}
		select {
		case <-change:
		case <-c.Done():
			return nil, &transport.Error{Op: "accept at", Peer: l.addr, Err: c.Err()}
		}
	}
}

func (l *listener) Close() error {
	l.host.net.mu.Lock()
	left := l.closeLocked()
	l.host.net.mu.Unlock()
	for _, e := range left {
		_ = e.Close("the listener was closed")
	}
	return nil
}

// closeLocked gives the links that nobody has accepted.
func (l *listener) closeLocked() (left []*end) {
	if l.closed {
		return nil
	}
	l.closed = true
	delete(l.host.net.listeners, l.addr)
	left, l.queue = l.queue, nil
	l.bell.ring()
	return left
}
