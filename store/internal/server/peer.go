package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/weft-project/weft/internal/eager"
	"github.com/weft-project/weft/store/internal/door"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// peer is one connection of a server: its socket and what is yet to be written to it.
//
// Replies are queued, and become bytes when somebody writes. The peer's own goroutine writes them
// before it blocks in a read, so that a burst of commands is answered by one write. What other
// clients cause (a wake-up, news of a key) is written by whoever causes it as far as the socket
// takes it at once, and from there by a goroutine started for it. So who causes a reply never waits
// for who gets it, and an idle peer has neither buffer nor second goroutine.
type peer struct {
	id     state.ClientID
	nc     net.Conn
	conn   net.Conn        // nc with an eager reader, or TLS over nc
	raw    syscall.RawConn // of a bare socket, which can be written without waiting; nil elsewhere
	server *Server         // for its counters
	owner  owner           // whose process the client is
	visit  *door.Visitor   // its place
	proved bool            // that it is more than a silent connection; its own goroutine's
	space  *space          // that it sees; known when it has shown what it speaks
	most   int             // so many bytes may be queued: who does not read is closed
	holds  int             // of the half-read command, as counted in space.arriving

	mu      sync.Mutex
	idle    sync.Cond // writing became false
	say     wire.Protocol
	queue   []state.Reply
	queued  int    // bytes in it, about
	rest    []byte // what a write without waiting has left
	writing bool
	called  bool   // somebody is on the way to write
	after   uint64 // the record of the journal before which nothing is written
	safe    uint64 // the last one of which is known that it is safe
	err     error  // the first failure to write
}

const (
	peerFull = 64 << 10 // with so much to write a peer writes before it takes another command
	byeTime  = time.Second
	byeBytes = 1 << 20 // read of a client that is being closed, so that it gets to hear why
)

var errSlow = errors.New("the client does not read what is sent to it")

func newPeer(id state.ClientID, nc net.Conn, s *Server) *peer {
	p := &peer{id: id, nc: nc, conn: eager.Wrap(nc, s.lookout), raw: rawConn(nc), server: s, most: peerFull + 4*(s.limits.Value+s.limits.Key)}
	p.idle.L = &p.mu
	return p
}

// Read implements io.Reader for the decoder: before blocking, everything due is written.
func (p *peer) Read(b []byte) (int, error) {
	if err := p.flush(); err != nil {
		return 0, err
	}
	n, err := p.conn.Read(b)
	p.server.in.Add(uint64(n))
	return n, err
}

// speak changes how the replies that are queued from now on are written.
func (p *peer) speak(w wire.Protocol) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.flushLocked()
	p.say = w
	return err
}

// enqueue queues a reply, unless none is sent to such a command, and says whether somebody should
// call write for it. An error means that the client has broken a rule. cause is the command, this
// client's or another's. The reply is written after that record of the journal is safe.
func (p *peer) enqueue(r state.Reply, cause state.Op, after uint64) (call bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false, nil
	}
	if send, err := p.say.Adapt(&r, cause); !send {
		return false, err
	}
	p.after = max(p.after, after)
	p.queue = append(p.queue, r)
	if p.queued += r.Size(); p.queued > p.most && r.Op == state.OpNews {
		p.failLocked(errSlow)
		return false, nil
	}
	call = !p.writing && !p.called
	p.called = p.called || call
	return call, nil
}

// owes has the peer wait for a record of the journal before it reads on, though there may be
// nothing to answer: a client that asks for no answers is not ahead of the disk by more than a few
// commands, and what it has changed is not left lying.
func (p *peer) owes(after uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = max(p.after, after)
}

func (p *peer) failLocked(err error) {
	if p.err == nil {
		p.err, p.queue, p.rest = err, nil, nil
		p.nc.Close()
	}
}

// full says whether so much is queued that the peer should write before it reads on.
func (p *peer) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queued > peerFull
}

// flush writes until nothing is left, or waits until another goroutine has.
func (p *peer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flushLocked()
}

func (p *peer) flushLocked() error {
	p.called = false
	for p.writing && p.err == nil {
		p.idle.Wait()
	}
	for (len(p.queue)+len(p.rest) > 0 || p.after > p.safe) && p.err == nil {
		p.writeLocked(p.conn)
	}
	return p.err
}

// write writes what can be written without waiting and says whether more is to be done by flush.
func (p *peer) write() (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing || p.err != nil { // who writes goes on until all is written
		p.called = false
		return false
	}
	if p.raw == nil || p.queued > wire.EncoderFull || len(p.rest) > 0 {
		return true
	}
	if p.called = false; len(p.queue) > 0 {
		p.writeLocked(hasty{p})
	}
	p.called = p.err == nil && !p.writing && len(p.queue)+len(p.rest) > 0
	return p.called
}

// writeLocked turns the queue into bytes and writes them. Meanwhile p.mu is free.
func (p *peer) writeLocked(to io.Writer) {
	batch, rest, say, after := p.queue, p.rest, p.say, p.after
	p.queue, p.rest, p.queued, p.writing = nil, nil, 0, true
	p.mu.Unlock()
	err := p.server.committed(after)
	if err == nil {
		err = p.send(to, rest, batch, say)
	}
	p.mu.Lock()
	p.writing = false
	if p.safe = after; err != nil {
		p.failLocked(err)
	}
	if len(p.queue) == 0 && cap(batch) <= 4 {
		clear(batch)
		p.queue = batch[:0]
	}
	p.idle.Broadcast()
}

func (p *peer) send(to io.Writer, rest []byte, batch []state.Reply, say wire.Protocol) error {
	e := p.server.encoder()
	e.To = to
	if len(rest) > 0 {
		e.Emit(rest)
	}
	for _, r := range batch {
		say.WriteReply(e, r)
	}
	e.Flush()
	err := e.Err
	p.server.out.Add(e.Sent)
	p.server.recycle(e)
	return err
}

// hasty writes what the socket takes at once and keeps the rest.
type hasty struct{ *peer }

func (p hasty) Write(b []byte) (int, error) {
	n, err := writeNow(p.raw, b)
	if n < len(b) && err == nil {
		p.rest = append([]byte(nil), b[n:]...) // by p.writing nobody else's
	}
	return len(b), err
}

type halfCloser interface{ CloseWrite() error }

// bye sends for a moment what was answered before the client broke a rule, and closes. What the
// client is still sending is read for that moment, as otherwise its system might throw the answers
// away.
func (p *peer) bye(broke bool) {
	_ = p.nc.SetDeadline(time.Now().Add(byeTime))
	if err := p.flush(); err == nil && broke {
		half, ok := p.conn.(halfCloser)
		if !ok {
			half, ok = p.nc.(halfCloser)
		}
		if ok && half.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, p.conn, byeBytes)
		}
	}
	p.nc.Close()
}
