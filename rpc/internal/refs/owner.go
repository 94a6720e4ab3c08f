package refs

import (
	"maps"
	"slices"
	"time"
)

// Serve notes that the call that makes a value has arrived. It fails where the caller has given up
// meanwhile. Made must follow where it succeeds.
func (m *Machine) Serve(from Node, id ID) error {
	p := m.peers[from]
	switch {
	case p == nil:
		return ErrLost
	case id.Owner != m.me || id.By != from || id.N == 0:
		return ErrInvalid
	case p.used.has(id.N):
		return ErrAbandoned
	case len(p.counted) >= m.limit:
		return ErrLimit
	}
	m.values[id] = &value{making: true}
	if !m.claim(p, id, id.N) {
		delete(m.values, id)
		return ErrLimit
	}
	return nil
}

// Made says how the call ended. A value that was not made, or that nobody refers to any more, is
// freed.
func (m *Machine) Made(id ID, ok bool) {
	v := m.values[id]
	if v == nil || !v.making {
		return
	}
	v.making = false
	v.count++ // so that it is freed once
	if p := m.peers[id.By]; !ok && p != nil {
		m.unclaim(p, id.N)
	}
	m.uncount(id)
}

// Answer marks a ticket of a caller as used: the answer is about to be sent. It fails where the
// caller has given up.
func (m *Machine) Answer(to Node, ticket uint64) error {
	p := m.peers[to]
	switch {
	case p == nil:
		return ErrLost
	case ticket == 0:
		return ErrInvalid
	case p.answered.has(ticket):
		return ErrAbandoned
	case !p.answered.add(ticket, m.limit):
		return ErrLimit
	}
	return nil
}

// Has says whether a value is here.
func (m *Machine) Has(id ID) bool { return m.values[id] != nil }

// claim counts a peer's claim on a value that is here.
func (m *Machine) claim(p *peer, id ID, n uint64) bool {
	if !p.used.add(n, m.limit) {
		return false
	}
	p.counted[n] = id
	m.values[id].count++
	return true
}

func (m *Machine) unclaim(p *peer, n uint64) {
	if id, counted := p.counted[n]; counted {
		delete(p.counted, n)
		m.uncount(id)
	}
}

// uncount takes one from a value's count, and frees it with the last.
func (m *Machine) uncount(id ID) {
	v := m.values[id]
	v.count--
	if v.count == 0 && !v.making {
		delete(m.values, id)
		m.act(Action{Kind: Freed, ID: id})
	}
}

// Receive handles a peer's control messages and gives the answers, one for each. Whatever a peer
// sends changes only what was counted for that peer, or given to it.
func (m *Machine) Receive(now time.Time, from Node, msgs []Message) ([]Answer, error) {
	p := m.peers[from]
	if p == nil {
		return nil, ErrLost
	}
	if len(msgs) > maxPacket {
		return nil, ErrLimit
	}
	answers := make([]Answer, len(msgs))
	for i, msg := range msgs {
		answers[i] = m.receive(now, p, msg)
	}
	return answers, nil
}

func (m *Machine) receive(now time.Time, p *peer, msg Message) Answer {
	if msg.N == 0 {
		return OK // numbers begin at 1
	}
	switch msg.Op {
	case Fork:
		return m.receiveFork(p, msg)
	case Delete:
		if c, open := p.given[msg.N]; msg.Given && open && c.hold == 0 {
			m.resolveShare(now, p, msg.N)
		}
		if !msg.Given {
			if !p.used.add(msg.N, m.limit) {
				return Again
			}
			m.unclaim(p, msg.N)
		}
	case Accept:
		if c, open := p.given[msg.N]; open && c.hold != 0 {
			m.resolveShare(now, p, msg.N)
		}
	case Recall:
		if _, here := p.arrived[msg.N]; here {
			return Taken
		}
		if !p.seen.add(msg.N, m.limit) {
			return Again
		}
	case Abandon:
		if !p.answered.add(msg.N, m.limit) {
			return Again
		}
		for _, n := range slices.Sorted(maps.Keys(p.given)) {
			if p.given[n].ticket == msg.N {
				m.recall(now, p.node, n)
			}
		}
	}
	return OK
}

// receiveFork counts a claim once. A claim that was seen before and does not count was refused, or
// deleted since.
func (m *Machine) receiveFork(p *peer, msg Message) Answer {
	switch {
	case p.used.has(msg.N):
		if p.counted[msg.N] == msg.ID {
			return OK
		}
		return Gone
	case m.values[msg.ID] == nil:
		if !p.used.add(msg.N, m.limit) {
			return Again
		}
		return Gone
	case len(p.counted) >= m.limit || !m.claim(p, msg.ID, msg.N):
		return Again
	}
	return OK
}
