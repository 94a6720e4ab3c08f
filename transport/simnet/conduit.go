package simnet

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/weft-project/weft/transport/internal/mux"
)

// conduit is an end's way to the other end. Chunks of one stream stay in order; those of different
// streams overtake each other, so that streams are numbered anew in the order in which they arrive.
type conduit struct {
	end  *end
	rest []byte // written, no whole chunk yet; the writer's

	// guarded by Net.mu
	flows  map[key]*flow     // what goes to the other end
	in     []byte            // arrived, not read
	over   bool              // nothing more is read or written
	bell   bell              // for Read
	theirs []uint64          // of the other end's streams, in order of arrival: their numbers there
	here   map[uint64]uint64 // and their numbers here
}

func newConduit(e *end) *conduit {
	return &conduit{end: e, flows: map[key]*flow{}, here: map[uint64]uint64{}}
}

// key is what a flow is of: a stream as its opener numbers it, credit for it, or, the zero value,
// the link's own words.
type key struct {
	stream        uint64 // from 1
	mine, credits bool
}

// flow is chunks that stay in order.
type flow struct {
	key
	name    string
	flight  []packet
	last    time.Time // when the last of them arrives
	posted  int
	message []byte // the beginning of a message
	stalled bool   // a message was dropped
	ended   bool   // no message follows
}

// packet is a chunk under way; nil says that nothing follows.
type packet struct {
	chunk mux.Chunk
	at    time.Time
}

// Write sends all chunks that are whole on their way. It never waits.
func (k *conduit) Write(b []byte) (int, error) {
	n := k.end.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if k.over {
		return 0, syscall.EPIPE // the reader has the last words
	}
	k.rest = append(k.rest, b...)
	for {
		var c mux.Chunk
		if c, k.rest = mux.CutChunk(k.rest); c == nil {
			k.rest = bytes.Clone(k.rest)
			return len(b), nil
		}
		k.sendLocked(c)
	}
}

// TryWrite is Write.
func (k *conduit) TryWrite(b []byte) (int, error) { return k.Write(b) }

// sendLocked puts a chunk into the flow of its stream, or of the link's own words.
func (k *conduit) sendLocked(c mux.Chunk) {
	e := k.end
	var of key
	if number, dialler, ok := c.Stream(); ok {
		if of.mine = dialler == e.dialer; !of.mine {
			number = k.theirs[number]
			c.Renumber(number, dialler)
		}
		of.stream, of.credits = number+1, c.Credit()
	}
	f := k.flowLocked(of)
	part, last := c.Part()
	f.message = append(f.message, part...)
	if last {
		f.stalled = f.stalled || k.drops(f.message)
		f.message = nil
	}
	if !f.stalled || !c.Opens() {
		f.ended = c.Ends()
		k.postLocked(f, c)
	}
}

func (k *conduit) flowLocked(of key) *flow {
	f := k.flows[of]
	if f == nil {
		opener := k.end.peer
		if of.mine {
			opener = k.end.host
		}
		f = &flow{key: of, name: fmt.Sprintf("%s, stream %d from %s", k.end.name, of.stream, opener)}
		if of.credits {
			f.name += ", credit"
		}
		k.flows[of] = f
	}
	return f
}

// drops says whether a message is lost.
func (k *conduit) drops(frame []byte) bool {
	n := k.end.net
	if n.cfg.Drop == nil {
		return false
	}
	m, err := n.codec.Decode(bytes.NewReader(frame), nil)
	if err != nil {
		return false // the other end finds it out, too
	}
	defer m.Release()
	return n.cfg.Drop(k.end.host, k.end.peer, m)
}

// postLocked sends a packet on its way.
func (k *conduit) postLocked(f *flow, c mux.Chunk) {
	n, e := k.end.net, k.end
	f.posted++
	now := time.Now()
	at := now.Add(n.delay(e.host, e.peer, f.name+", packet "+strconv.Itoa(f.posted)))
	if at.Before(f.last) {
		at = f.last
	}
	f.last = at
	f.flight = append(f.flight, packet{c, at})
	if wait := at.Sub(now); wait > 0 {
		time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			k.pumpLocked(f)
		})
		return
	}
	k.pumpLocked(f)
}

// pumpLocked delivers what is due, unless the link is cut or an end is dead.
func (k *conduit) pumpLocked(f *flow) {
	e := k.end
	if e.net.cutLocked(e.host, e.peer) || e.dead || e.other.dead {
		return
	}
	for now := time.Now(); len(f.flight) > 0 && !f.flight[0].at.After(now); {
		p := f.flight[0]
		f.flight = f.flight[1:]
		e.other.conduit.arriveLocked(p.chunk)
	}
	if f.ended && len(f.flight) == 0 {
		delete(k.flows, f.key)
	}
}

// arriveLocked takes what the other end sent.
func (k *conduit) arriveLocked(c mux.Chunk) {
	if c == nil {
		k.overLocked()
		return
	}
	if number, dialler, ok := c.Stream(); ok && dialler != k.end.dialer {
		here, known := k.here[number]
		switch {
		case !known && !c.Opens():
			return // of a stream whose messages were dropped
		case !known:
			here = uint64(len(k.theirs))
			k.here[number] = here
			k.theirs = append(k.theirs, number)
		}
		c.Renumber(here, dialler)
	}
	k.in = append(k.in, c...)
	k.bell.ring()
}

// Read waits for chunks.
func (k *conduit) Read(b []byte) (int, error) {
	n := k.end.net
	for {
		n.mu.Lock()
		if len(k.in) > 0 {
			done := copy(b, k.in)
			k.in = k.in[done:]
			n.mu.Unlock()
			return done, nil
		}
		over, change := k.over, k.bell.rung()
		n.mu.Unlock()
		if over {
			return 0, io.EOF
		}
		<-change
	}
}

// Close hangs up: the other end learns of it after what was sent of the link's own words.
func (k *conduit) Close() error {
	n := k.end.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if !k.over {
		k.overLocked()
		k.postLocked(k.flowLocked(key{}), nil)
	}
	return nil
}

func (k *conduit) overLocked() {
	k.over = true
	k.bell.ring()
}
