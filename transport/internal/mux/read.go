package mux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

const readAhead = 64 << 10

// readLoop takes chunks off the conduit until it fails.
func (l *Session) readLoop() {
	r := bufio.NewReaderSize(counted{l.Conduit, l.Count}, readAhead)
	var fixed [chunkSize]byte
	for {
		h, err := readChunk(r, &fixed)
		if err == nil {
			err = l.handleChunk(h, r)
		}
		switch {
		case err == nil:
		case errors.Is(err, wire.ErrFrame):
			l.breach(err)
			return
		default:
			l.End(l.Explain("read from", err))
			return
		}
	}
}

// counted counts what is read.
type counted struct {
	r     io.Reader
	count *lane.Traffic
}

func (r counted) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.count.Received.Add(uint64(n))
	return n, err
}

// handleChunk does what a chunk says, and reads its body.
func (l *Session) handleChunk(h chunk, r *bufio.Reader) error {
	if h.kind <= chunkCredit {
		return l.takeForStream(h, r)
	}
	body, err := r.Peek(h.size) // at most MaxWord, which the buffer holds
	if err != nil {
		return err
	}
	defer r.Discard(h.size) //nolint:errcheck // it is there
	switch h.kind {
	case chunkStreams:
		return l.allow(h.number)
	case chunkWord:
		to := l.Channel(h.lane)
		if to == nil {
			return wire.FrameErr("word", "a lane of this link", "%d", h.lane)
		}
		return to.Control(body)
	case chunkPing:
		return l.out.control(chunk{kind: chunkPong, number: h.number}, nil)
	case chunkPong:
		l.pongs.Store(h.number)
	case chunkClose:
		l.End(&wire.Error{Op: "link with", Peer: l.Peer, Err: wire.ErrPeerClosed, Reason: string(body)})
	}
	return nil
}

// allow lets this end open more streams.
func (l *Session) allow(total uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if total > 1<<62 {
		return wire.FrameErr("streams", "a number of streams", "%d", total)
	}
	if total > l.allowed { // an older word may come later
		l.openable += total - l.allowed
		l.allowed = total
		lane.Wake(l.opening)
	}
	return nil
}

// takeForStream finds the stream that a chunk belongs to. What is for a finished one is dropped.
func (l *Session) takeForStream(h chunk, r *bufio.Reader) error {
	s, opened, err := l.find(h)
	if err != nil {
		return err
	}
	if opened {
		defer l.handOver() // with its first piece
	}
	switch {
	case h.kind == chunkMessage:
		p := l.newPiece(h)
		if _, err := io.ReadFull(r, p.b); err != nil {
			l.free(p)
			return err
		}
		if s != nil {
			s.tally(h.flags&flagExternal != 0)
		}
		return l.deliver(s, p)
	case h.kind == chunkCredit:
		var b [4]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return err
		}
		if s != nil {
			return s.credited(int64(binary.LittleEndian.Uint32(b[:])))
		}
	case h.kind == chunkReset:
		body := make([]byte, h.size)
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		if s != nil {
			s.resetByPeer(h.flags&flagStop != 0, h.flags&flagAbort != 0, wire.ParseReason(body))
		}
	case s == nil:
	case h.kind == chunkEnd:
		return l.deliver(s, l.newPiece(h))
	}
	return nil
}

// deliver puts a piece on its stream, or drops it where nobody will receive it.
func (l *Session) deliver(s *stream, p *piece) error {
	if s != nil {
		taken, err := s.arrive(p)
		if taken || err != nil {
			if most := l.Codec.Lim.MaxQueued; l.queued.Load() > most {
				l.relieve(most)
			}
			return err
		}
	}
	l.discard(p)
	return nil
}

// relieve resets the stream on which the most waits. To stop reading instead would hold up
// heartbeats, and those who could make room again.
func (l *Session) relieve(most int64) {
	var largest *stream
	var size int64
	l.mu.Lock()
	for _, s := range l.streams {
		if n := s.queued.Load(); n > size {
			largest, size = s, n
		}
	}
	if i := slices.Index(l.arrived, largest); i >= 0 {
		l.arrived = slices.Delete(l.arrived, i, i+1)
	}
	l.mu.Unlock()
	if largest != nil {
		largest.Reset(fmt.Errorf("transport: more than %d bytes wait on its link to be received, as MaxQueued says, and most of them here", most))
	}
}

// discard drops a piece, and tells the peer where tensors need not come.
func (l *Session) discard(p *piece) {
	if p.flags&flagExternal != 0 {
		if h := l.Channel(p.lane); h != nil {
			if ticket, _, err := cutTicket(p.b); err == nil {
				h.Refuse(ticket)
			}
		}
	}
	l.free(p)
}

// find gives the stream of a chunk: nil for a finished one, and a new one where the peer opens it.
func (l *Session) find(h chunk) (s *stream, opened bool, err error) {
	l.mu.Lock()
	s, opened, err = l.findLocked(h)
	grant := l.grantLocked()
	l.mu.Unlock()
	l.grant(grant)
	return s, opened, err
}

func (l *Session) findLocked(h chunk) (s *stream, opened bool, err error) {
	if s := l.streams[h.number]; s != nil || l.over {
		return s, false, nil
	}
	index := h.number >> 1
	if (h.number&1 == 1) == l.Dialler { // this end's own
		if index >= l.allowed {
			return nil, false, wire.FrameErr("stream", "one that was opened", "stream %d", index)
		}
		return nil, false, nil // finished
	}
	switch {
	case index < l.seen:
		return nil, false, nil // finished
	case index >= l.granted:
		return nil, false, wire.FrameErr("stream", "no more streams than were allowed", "stream %d of %d", index, l.granted)
	case index > l.seen:
		return nil, false, wire.FrameErr("stream", "streams in order", "stream %d after %d", index, l.seen)
	case h.kind != chunkMessage && h.kind != chunkEnd:
		return nil, false, wire.FrameErr("stream", "a message first", "kind %d", h.kind)
	}
	l.seen++
	s = newStream(l)
	s.number, s.known, s.theirs = h.number, true, true
	l.streams[h.number] = s
	l.arrived = append(l.arrived, s)
	return s, true, nil
}

// forget drops a stream that this end has finished.
func (l *Session) forget(number uint64, theirs bool) {
	l.mu.Lock()
	delete(l.streams, number)
	if theirs {
		l.ended++
	}
	grant := l.grantLocked()
	l.mu.Unlock()
	l.grant(grant)
}

// grantLocked says how many streams the peer may now have opened in all, when it is time to tell
// it: when many of its streams were finished, or none are left to it.
func (l *Session) grantLocked() uint64 {
	if l.ended == 0 || l.ended*4 < l.Accepts && l.seen < l.granted {
		return 0
	}
	l.granted += l.ended
	l.ended = 0
	return l.granted
}

func (l *Session) grant(total uint64) {
	if total > 0 {
		_ = l.out.control(chunk{kind: chunkStreams, number: total}, nil) // fails only with the link
	}
}
