package store

import (
	"errors"
	"net"
	"sync"
	"time"
)

// peer is one connection of a server: its socket and what is yet to be written to it.
//
// Replies are collected in out. The peer's own goroutine writes them before it blocks in a read, so that a burst of
// commands is answered by one write; what other clients cause (a wake-up, news of a key) is written by a goroutine
// started for it. Who causes a reply never waits for the socket of who gets it.
type peer struct {
	id clientID
	nc net.Conn
	wire
	most int // out grows no further: who does not read is closed

	mu      sync.Mutex
	idle    sync.Cond // writing became false
	out     []byte
	spare   []byte // the buffer written last, for reuse
	writing bool
	pending bool  // somebody is on the way to write
	err     error // the first failure to write
}

const (
	peerFull = 64 << 10 // with so much to write a peer writes before it takes another command
	byeTime  = time.Second
)

var errSlow = errors.New("the client does not read what is sent to it")

func newPeer(id clientID, nc net.Conn, limits Limits) *peer {
	p := &peer{id: id, nc: nc, most: peerFull + 4*(limits.Value+limits.Key)}
	p.idle.L = &p.mu
	return p
}

// Read implements io.Reader for the decoder: before blocking, everything due is written.
func (p *peer) Read(b []byte) (int, error) {
	if err := p.flush(); err != nil {
		return 0, err
	}
	return p.nc.Read(b)
}

// add queues a reply and says whether nobody is writing, so that somebody should.
func (p *peer) add(r reply) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false
	}
	if p.out = p.appendReply(p.out, r); len(p.out) > p.most {
		p.failLocked(errSlow)
		return false
	}
	if p.writing || p.pending {
		return false
	}
	p.pending = r.op == opWait || r.op == opNews
	return true
}

func (p *peer) failLocked(err error) {
	if p.err == nil {
		p.err, p.out = err, nil
		p.nc.Close()
	}
}

func (p *peer) drainIfFull() error {
	p.mu.Lock()
	full := len(p.out) > peerFull
	p.mu.Unlock()
	if full {
		return p.flush()
	}
	return nil
}

// flush writes until nothing is left, or waits until another goroutine has.
func (p *peer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = false
	for p.writing && p.err == nil {
		p.idle.Wait()
	}
	for len(p.out) > 0 && p.err == nil {
		b := p.out
		p.out, p.writing = p.spare[:0], true
		p.mu.Unlock()
		_, err := p.nc.Write(b)
		p.mu.Lock()
		p.writing = false
		if p.spare = nil; cap(b) <= peerFull {
			p.spare = b[:0]
		}
		if err != nil {
			p.failLocked(err)
		}
		p.idle.Broadcast()
	}
	return p.err
}

// bye sends what was answered before the client broke a rule, for a moment, and closes.
func (p *peer) bye() {
	_ = p.nc.SetWriteDeadline(time.Now().Add(byeTime))
	p.flush()
	p.nc.Close()
}
