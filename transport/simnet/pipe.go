package simnet

import (
	"strconv"
	"time"
)

// pipe is one direction of a stream: what is under way, in order. It is guarded by Net.mu.
type pipe struct {
	from    *stream
	flight  []packet
	last    time.Time // when the last of them arrives
	posted  int
	stalled bool // a message was dropped
}

// packet is what travels on a stream: a message, or signs.
type packet struct {
	frame []byte
	fin   bool  // nothing follows
	abort bool  // what is under way is void
	stop  bool  // the sender of this will receive nothing more
	why   error // of an abort or a stop; may be nil
	at    time.Time
}

// postLocked sends a packet on its way. An abort overtakes, and takes away, what is still under
// way.
func (p *pipe) postLocked(k packet) {
	if p.stalled && !k.abort && !k.stop {
		return
	}
	n, e := p.from.end.net, p.from.end
	p.posted++
	now := time.Now()
	k.at = now.Add(n.delay(e.host, e.peer, p.from.name+", packet "+strconv.Itoa(p.posted)))
	if k.abort {
		p.flight = nil
	} else if k.at.Before(p.last) {
		k.at = p.last
	}
	p.last = k.at
	p.flight = append(p.flight, k)
	if wait := k.at.Sub(now); wait > 0 {
		time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			p.pumpLocked()
		})
		return
	}
	p.pumpLocked()
}

// pumpLocked delivers what is due, unless the link is cut or gone.
func (p *pipe) pumpLocked() {
	s := p.from
	n := s.end.net
	if s.end.err != nil || s.end.other.err != nil {
		p.flight = nil
		return
	}
	if n.cutLocked(s.end.host, s.end.peer) {
		return
	}
	for now := time.Now(); len(p.flight) > 0 && !p.flight[0].at.After(now); {
		k := p.flight[0]
		p.flight = p.flight[1:]
		s.peer.arriveLocked(k)
	}
	s.forgetLocked()
}
