package talktest

import (
	"context"
	"net"
	"sync"
)

// Pipes is a listener without a network.
type Pipes struct {
	ends  chan net.Conn
	over  chan struct{}
	close sync.Once
}

// NewPipes makes one.
func NewPipes() *Pipes {
	return &Pipes{ends: make(chan net.Conn), over: make(chan struct{})}
}

// Dial connects to it.
func (p *Pipes) Dial(c context.Context, _ string) (net.Conn, error) {
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
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-p.ends:
		return nc, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error {
	p.close.Do(func() { close(p.over) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }
