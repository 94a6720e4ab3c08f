package mux

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

const (
	backlogMax = 256 << 10 // bytes that wait to be written; senders of messages wait beyond it
	backlogEnd = 16 << 20  // a peer that lets this much of what cannot wait pile up does not read
	inlineMax  = 4 << 10   // a sender writes up to this many bytes itself
	crowd      = 4         // with so many streams open, writes wait for each other
)

var errNotRead = errors.New("the peer does not read")

// outbox collects chunks and writes them to the conduit, many at a time. Where nobody writes, who
// adds a chunk does it itself, without waiting; else, and where the conduit would make it wait, a
// goroutine does, which lives for as long as there is something to write.
type outbox struct {
	conduit lane.Conduit
	fail    func(error) // told once, without the lock, that a write failed
	count   *lane.Traffic

	mu      sync.Mutex
	buf     []byte
	spare   []byte // the other buffer, while nobody writes it
	writing bool
	err     error
	room    chan struct{} // closed when buf has been taken; made by who waits
}

// lock waits until there is room for a chunk of a message of s, and returns with mu held.
func (o *outbox) lock(c context.Context, s *stream) error {
	for {
		o.mu.Lock()
		if o.err != nil {
			err := o.err
			o.mu.Unlock()
			return err
		}
		if len(o.buf) < backlogMax {
			return nil
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		s.mu.Lock()
		err, again := s.maySendLocked(), s.sendWakeLocked()
		s.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-room:
		case <-again:
		case <-c.Done():
			return c.Err()
		}
	}
}

// control adds a chunk that cannot wait.
func (o *outbox) control(h chunk, body []byte) error {
	o.mu.Lock()
	if o.err != nil {
		err := o.err
		o.mu.Unlock()
		return err
	}
	o.addLocked(h, body)
	o.kickLocked(false)
	return nil
}

func (o *outbox) addLocked(h chunk, body []byte) {
	h.size = len(body)
	o.buf = h.append(o.buf)
	o.buf = append(o.buf, body...)
}

// kickLocked sees to it that what was added is written, and releases mu. crowded says that others
// are about to add more.
func (o *outbox) kickLocked(crowded bool) {
	if o.writing {
		tooMuch := len(o.buf) > backlogEnd
		o.mu.Unlock()
		if tooMuch {
			o.failWith(errNotRead)
		}
		return
	}
	o.writing = true
	if crowded || len(o.buf) > inlineMax {
		o.mu.Unlock()
		go o.flush(nil, crowded)
		return
	}
	b := o.takeLocked()
	o.mu.Unlock()
	n, err := o.conduit.TryWrite(b)
	o.count.Sent.Add(uint64(n))
	if err != nil {
		o.failWith(err)
		return
	}
	if n < len(b) {
		go o.flush(b[n:], false)
		return
	}
	o.mu.Lock()
	o.giveLocked(b)
	if len(o.buf) == 0 || o.err != nil {
		o.writing = false
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	go o.flush(nil, false)
}

// takeLocked takes what is to be written.
func (o *outbox) takeLocked() []byte {
	b := o.buf
	o.buf, o.spare = o.spare[:0], nil
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	return b
}

// giveLocked takes a buffer back.
func (o *outbox) giveLocked(b []byte) {
	if cap(b) <= wire.KeepScratch {
		o.spare = b[:0]
	}
}

// flush writes b, and then all that is added meanwhile.
func (o *outbox) flush(b []byte, crowded bool) {
	for {
		if len(b) > 0 {
			n, err := o.conduit.Write(b)
			o.count.Sent.Add(uint64(n))
			if err != nil {
				o.failWith(err)
				return
			}
		}
		if crowded {
			runtime.Gosched() // who can run adds its chunk first
		}
		o.mu.Lock()
		if b != nil {
			o.giveLocked(b)
		}
		if len(o.buf) == 0 || o.err != nil {
			o.writing = false
			o.mu.Unlock()
			return
		}
		b = o.takeLocked()
		o.mu.Unlock()
	}
}

// failWith makes further chunks fail, and wakes who waits.
func (o *outbox) failWith(err error) {
	o.mu.Lock()
	first := o.err == nil
	if first {
		o.err = err
		o.buf, o.spare = nil, nil
		if o.room != nil {
			close(o.room)
			o.room = nil
		}
	}
	o.mu.Unlock()
	if first {
		o.fail(err)
	}
}

// isHangUp says that a write failed because the peer has closed its end.
func isHangUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

func (o *outbox) hungUp() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return isHangUp(o.err)
}

// idle says whether all has been written.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil || !o.writing && len(o.buf) == 0
}
