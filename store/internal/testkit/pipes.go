package testkit

import (
	"context"
	"net"
	"sync"
)

// pipes is a listener without a network.
type pipes struct {
	ends  chan net.Conn
	over  chan struct{}
	close sync.Once
}

func NewPipes() *pipes {
	return &pipes{ends: make(chan net.Conn), over: make(chan struct{})}
}

// dial connects to it.
func (p *pipes) Dial(c context.Context, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.ends <- far:
		return near, nil
	case <-p.over:
		return nil, net.ErrClosed
	case <-c.Done():
		return nil, c.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-p.ends:
		return nc, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.close.Do(func() { close(p.over) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }
