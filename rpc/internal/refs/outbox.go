package refs

import "time"

const (
	maxFlying  = 4   // packets under way to one peer
	maxPacket  = 256 // messages in one
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
)

// outbox is what a peer is still to be told. A message leaves it when it is answered, or the peer
// is lost.
type outbox struct {
	queue    []Message
	flying   map[uint64][]Message // by packet
	failures int                  // in a row
	until    time.Time            // nothing is sent before
}

// sendReliably sends a message until it is answered. Whoever is lost needs no telling.
func (m *Machine) sendReliably(now time.Time, to Node, msg Message) {
	p := m.peers[to]
	if p == nil {
		return
	}
	if to == m.me {
		m.hear(now, p, msg, m.receive(now, p, msg))
		return
	}
	p.out.queue = append(p.out.queue, msg)
	m.flush(now, p)
}

// flush sends what can be sent.
func (m *Machine) flush(now time.Time, p *peer) {
	o := &p.out
	for len(o.queue) > 0 && len(o.flying) < maxFlying && !now.Before(o.until) {
		n := min(len(o.queue), maxPacket)
		m.packets++
		o.flying[m.packets] = o.queue[:n:n]
		m.act(Action{Kind: Send, To: p.node, Packet: m.packets, Messages: o.queue[:n:n], Failures: o.failures})
		if o.queue = o.queue[n:]; len(o.queue) == 0 {
			o.queue = nil
		}
	}
}

// Answered takes the answers to a packet. Those that come late, or twice, are ignored.
func (m *Machine) Answered(now time.Time, from Node, packet uint64, answers []Answer) {
	p := m.peers[from]
	if p == nil {
		return
	}
	msgs, flying := p.out.flying[packet]
	if !flying {
		return
	}
	if len(answers) != len(msgs) {
		m.Failed(now, from, packet)
		return
	}
	delete(p.out.flying, packet)
	p.out.failures, p.out.until = 0, time.Time{}
	for i, msg := range msgs {
		if answers[i] == Again {
			p.out.queue = append(p.out.queue, msg)
			p.out.until = now.Add(firstPause)
			continue
		}
		m.hear(now, p, msg, answers[i])
	}
	m.flush(now, p)
}

// Failed says that a packet was not answered in time. Its messages are sent again after a pause,
// which doubles each time.
func (m *Machine) Failed(now time.Time, to Node, packet uint64) {
	p := m.peers[to]
	if p == nil {
		return
	}
	msgs, flying := p.out.flying[packet]
	if !flying {
		return
	}
	delete(p.out.flying, packet)
	p.out.queue = append(msgs[:len(msgs):len(msgs)], p.out.queue...)
	if !now.Before(p.out.until) { // what was under way at the same time failed for the same reason
		p.out.until = now.Add(min(firstPause<<min(p.out.failures, 16), longPause))
		p.out.failures++
	}
}

// Tick sends what is due.
func (m *Machine) Tick(now time.Time) {
	if at, ok := m.Next(); !ok || now.Before(at) {
		return
	}
	for _, p := range m.sorted() {
		m.flush(now, p)
	}
}

// Next is when Tick is to be called; false where nothing waits for its time.
func (m *Machine) Next() (at time.Time, ok bool) {
	for _, p := range m.peers {
		if o := &p.out; len(o.queue) > 0 && len(o.flying) < maxFlying && (!ok || o.until.Before(at)) {
			at, ok = o.until, true
		}
	}
	return at, ok
}

// hear takes the answer to a message.
func (m *Machine) hear(now time.Time, p *peer, msg Message, a Answer) {
	switch msg.Op {
	case Fork:
		h, open := p.asked[msg.N]
		if !open {
			return
		}
		delete(p.asked, msg.N)
		if a == OK {
			m.confirm(now, h)
		} else {
			m.deny(now, h, ErrGone)
		}
	case Recall:
		if a == OK {
			m.resolveShare(now, p, msg.N)
		}
	}
}
