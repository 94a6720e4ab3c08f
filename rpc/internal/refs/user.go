package refs

import (
	"maps"
	"slices"
	"time"
)

func (m *Machine) newHold(s hold) Hold {
	m.last++
	s.handles = 1
	m.holds[m.last] = &s
	return m.last
}

// Create makes the share of a worker that is about to ask owner for a value. Created must follow.
func (m *Machine) Create(owner Node) (Hold, ID, error) {
	p := m.peers[owner]
	if p == nil {
		return 0, ID{}, ErrLost
	}
	p.claims++
	id := ID{Owner: owner, By: m.me, N: p.claims}
	return m.newHold(hold{id: id, n: id.N, state: creating}), id, nil
}

// Created says how the call that makes a hold's value ended. Where it did not succeed, as far as
// this worker knows, the owner is told, so that it keeps nothing should the call have reached it,
// or reach it yet.
func (m *Machine) Created(now time.Time, h Hold, ok bool) {
	s := m.holds[h]
	if s == nil || s.state != creating {
		return
	}
	if ok {
		s.state = confirmed
	} else {
		s.state = failed
		m.sendReliably(now, s.id.Owner, Message{Op: Delete, N: s.n})
	}
	m.retire(now, h)
}

// Own makes this worker the owner of a value, and gives it the first share.
func (m *Machine) Own() (Hold, ID) {
	p := m.peers[m.me]
	p.claims++
	id := ID{Owner: m.me, By: m.me, N: p.claims}
	m.values[id] = &value{}
	m.claim(p, id, id.N)
	return m.newHold(hold{id: id, n: id.N, state: confirmed}), id
}

// Release gives back one use of a hold: Create, Own and Arrive give one each. When there is none
// left, and no share given to others depends on it, the owner is told.
func (m *Machine) Release(now time.Time, h Hold) {
	if s := m.holds[h]; s != nil && s.handles > 0 {
		s.handles--
		m.retire(now, h)
	}
}

// retire ends a hold that nobody needs.
func (m *Machine) retire(now time.Time, h Hold) {
	s := m.holds[h]
	if s == nil || s.handles > 0 || s.children > 0 || s.state == creating || s.state == asking {
		return
	}
	delete(m.holds, h)
	if p := m.peers[s.id.Owner]; p != nil && s.given {
		delete(p.arrived, s.n)
	}
	if s.state == confirmed {
		m.sendReliably(now, s.id.Owner, Message{Op: Delete, N: s.n, Given: s.given})
	}
}

// Share gives a share in a confirmed hold's value to the receiver of a message, which carries the
// result. The hold stays until that share is settled: call Recall where the message fails. ticket
// is 0, or of the call that the message answers.
func (m *Machine) Share(h Hold, to Node, ticket uint64) (Share, error) {
	s, p := m.holds[h], m.peers[to]
	switch {
	case p == nil:
		return Share{}, ErrLost
	case s == nil || s.state != confirmed || s.handles == 0:
		return Share{}, ErrUnready
	case s.id.Owner == m.me && m.values[s.id] == nil:
		return Share{}, ErrGone
	case len(p.given) >= m.limit:
		return Share{}, ErrLimit
	}
	p.shares++
	c := child{id: s.id, hold: h, ticket: ticket}
	if s.id.Owner == m.me && to != m.me {
		c.hold = 0
		m.values[s.id].count++
	} else {
		s.children++
	}
	p.given[p.shares] = c
	return Share{s.id, p.shares}, nil
}

// Recall says that a message may not have reached its receiver and is of no use any more: the share
// that it carries must not be taken from it.
func (m *Machine) Recall(now time.Time, to Node, s Share) { m.recall(now, to, s.N) }

func (m *Machine) recall(now time.Time, to Node, n uint64) {
	p := m.peers[to]
	if p == nil {
		return
	}
	if to == m.me {
		m.resolveShare(now, p, n)
	} else if c, open := p.given[n]; open && !c.asked {
		c.asked = true
		p.given[n] = c
		m.sendReliably(now, to, Message{Op: Recall, N: n})
	}
}

// resolveShare ends what waits for a share that was given away.
func (m *Machine) resolveShare(now time.Time, p *peer, n uint64) {
	if c, open := p.given[n]; open {
		delete(p.given, n)
		m.orphan(now, c)
	}
}

// Arrive takes a share from a message. The hold may be used when confirmed says so, or else when
// the action Confirmed comes; Denied may come instead. It is to be released in any case.
func (m *Machine) Arrive(now time.Time, from Node, s Share) (h Hold, isConfirmed bool, err error) {
	p := m.peers[from]
	if p == nil {
		return 0, false, ErrLost
	}
	if from == m.me {
		return m.arriveFromSelf(now, p, s)
	}
	if p.seen.has(s.N) || s.N == 0 {
		return 0, false, ErrStale
	}
	if len(p.out.queue) >= m.limit || !p.seen.add(s.N, m.limit) {
		return 0, false, ErrLimit
	}
	owner := m.peers[s.ID.Owner]
	switch {
	case s.ID.Owner == from:
		h = m.newHold(hold{id: s.ID, n: s.N, given: true, state: confirmed})
		p.arrived[s.N] = h
		return h, true, nil
	case owner == nil:
		err = ErrLost
	case owner.node == m.me && m.values[s.ID] == nil:
		err = ErrGone
	}
	if err != nil {
		m.sendReliably(now, from, Message{Op: Accept, N: s.N})
		return 0, false, err
	}
	owner.claims++
	n := owner.claims
	if owner.node == m.me {
		m.claim(owner, s.ID, n)
		m.sendReliably(now, from, Message{Op: Accept, N: s.N})
		return m.newHold(hold{id: s.ID, n: n, state: confirmed}), true, nil
	}
	h = m.newHold(hold{id: s.ID, n: n, state: asking, parent: from, share: s.N})
	owner.asked[n], p.arrived[s.N] = h, h
	m.sendReliably(now, owner.node, Message{Op: Fork, N: n, ID: s.ID})
	return h, false, nil
}

// arriveFromSelf gives a further use of the hold that was shared.
func (m *Machine) arriveFromSelf(now time.Time, p *peer, s Share) (Hold, bool, error) {
	c, open := p.given[s.N]
	if !open || c.id != s.ID {
		return 0, false, ErrStale
	}
	m.holds[c.hold].handles++
	m.resolveShare(now, p, s.N)
	return c.hold, true, nil
}

// confirm takes the owner's answer to a claim.
func (m *Machine) confirm(now time.Time, h Hold) {
	s := m.holds[h]
	s.state = confirmed
	m.act(Action{Kind: Confirmed, Hold: h})
	m.accept(now, h, s)
}

// deny ends a claim that came to nothing.
func (m *Machine) deny(now time.Time, h Hold, err error) {
	s := m.holds[h]
	s.state = failed
	m.act(Action{Kind: Denied, Hold: h, Err: err})
	m.accept(now, h, s)
}

// accept lets the parent go.
func (m *Machine) accept(now time.Time, h Hold, s *hold) {
	if p := m.peers[s.parent]; p != nil {
		delete(p.arrived, s.share)
	}
	m.sendReliably(now, s.parent, Message{Op: Accept, N: s.share})
	m.retire(now, h)
}

// Ticket numbers a call to a worker whose answer may bring references; 0 where that worker is lost.
func (m *Machine) Ticket(to Node) uint64 {
	p := m.peers[to]
	if p == nil {
		return 0
	}
	p.tickets++
	return p.tickets
}

// Abandon says that a call with a ticket failed, or that its answer could not be taken whole: what
// the callee shared in its answer, or still would, must not be waited for.
func (m *Machine) Abandon(now time.Time, to Node, ticket uint64) {
	if ticket != 0 {
		m.sendReliably(now, to, Message{Op: Abandon, N: ticket})
	}
}

// ReleaseAll gives back all that the user holds in other workers' values. Release of what it gave
// back does nothing.
func (m *Machine) ReleaseAll(now time.Time) {
	for _, h := range slices.Sorted(maps.Keys(m.holds)) {
		if s := m.holds[h]; s.id.Owner != m.me {
			s.handles = 0
			m.retire(now, h)
		}
	}
}
