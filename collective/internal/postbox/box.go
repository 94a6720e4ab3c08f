package postbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Anyone is in place of a sender in a receive.
const Anyone = -1

// What a sender may have in a box, and what a message counts for beside its bytes.
const (
	Window     = 4 << 20
	MostOffers = 16 << 10
	overhead   = 256
	mostEarly  = MostOffers + Window/overhead // messages that have overtaken one
)

// Cost is what a message with so many bytes takes of the window.
func Cost(bytes int) int { return overhead + bytes }

// ErrFull says that a sender has more in the box than it may.
var ErrFull = errors.New("a member has sent more than it may before it is received")

// State is where the bytes of a message are.
type State uint8

// The states.
const (
	Here    State = iota // with the message
	Offered              // with its sender
	Wanted               // with its sender, who has been asked for them
)

// Message is what a member sends.
type Message[T any] struct {
	From  int
	Seq   uint64 // counts the messages from that sender, from 0
	Tag   int
	State State
	Cost  int // of the window; 0 for an offer
	It    T

	nth   uint64 // in which place it came into order, of all senders' messages
	offer bool   // it came without its bytes
	void  bool   // the sender has taken it back before it was in order
	to    *Receive[T]
}

// Receive waits for a message.
type Receive[T any] struct {
	from, tag int
	nth       uint64
	message   *Message[T]
}

// Message is what was matched; nil: nothing yet.
func (r *Receive[T]) Message() *Message[T] { return r.message }

func (r *Receive[T]) fits(m *Message[T]) bool { return r.from == Anyone || r.from == m.From }

// Box is one member's.
type Box[T any] struct {
	senders  []sender[T]
	waiting  map[slot][]*Message[T] // that nobody has matched, in order
	receives map[int][]*Receive[T]  // that nothing has matched, by tag, in order
	nth      uint64
}

// slot is where messages of one sender and tag wait.
type slot struct{ from, tag int }

type sender[T any] struct {
	next   uint64                 // all messages before it are in order
	early  map[uint64]*Message[T] // those beyond it
	known  map[uint64]*Message[T] // in order, and not taken
	bytes  int                    // of the window
	offers int
}

// New makes a box for messages of so many members.
func New[T any](members int) *Box[T] {
	b := &Box[T]{senders: make([]sender[T], members), waiting: map[slot][]*Message[T]{}, receives: map[int][]*Receive[T]{}}
	for i := range b.senders {
		b.senders[i].early, b.senders[i].known = map[uint64]*Message[T]{}, map[uint64]*Message[T]{}
	}
	return b
}

// Arrive takes a message. It gives the receives that are matched by it, and by those that it held
// up. One that its sender has taken back already, and one that was there before, are not taken.
// ErrFull means that the sender does not keep to what is agreed.
func (b *Box[T]) Arrive(m *Message[T]) (matched []*Receive[T], taken bool, err error) {
	s := &b.senders[m.From]
	if m.Seq < s.next || s.early[m.Seq] != nil {
		return nil, false, nil
	}
	offers, bytes := s.offers, s.bytes+m.Cost
	if m.offer = m.State == Offered; m.offer {
		offers++
	}
	if offers > MostOffers || bytes > Window || len(s.early) >= mostEarly {
		return nil, false, fmt.Errorf("%w: %d bytes and %d offers of rank %d", ErrFull, bytes, offers, m.From)
	}
	s.offers, s.bytes = offers, bytes
	s.early[m.Seq] = m
	return b.order(m.From), true, nil
}

// order puts what has come in its place.
func (b *Box[T]) order(from int) (matched []*Receive[T]) {
	s := &b.senders[from]
	for m := s.early[s.next]; m != nil; m = s.early[s.next] {
		delete(s.early, s.next)
		s.next++
		if m.void {
			continue
		}
		b.nth++
		m.nth = b.nth
		s.known[m.Seq] = m
		if r := b.offer(m); r != nil {
			matched = append(matched, r)
		}
	}
	return matched
}

// offer finds a receive for a message that has none, or lets it wait.
func (b *Box[T]) offer(m *Message[T]) *Receive[T] {
	all := b.receives[m.Tag]
	if i := slices.IndexFunc(all, func(r *Receive[T]) bool { return r.fits(m) }); i >= 0 {
		r := all[i]
		b.unwait(r)
		r.message, m.to = m, r
		return r
	}
	at := slot{m.From, m.Tag}
	i, _ := slices.BinarySearchFunc(b.waiting[at], m.nth, func(o *Message[T], nth uint64) int { return cmp.Compare(o.nth, nth) })
	b.waiting[at] = slices.Insert(b.waiting[at], i, m)
	return nil
}

// unwait takes a receive off the list of those that wait.
func (b *Box[T]) unwait(r *Receive[T]) {
	if i := slices.Index(b.receives[r.tag], r); i >= 0 {
		b.receives[r.tag] = slices.Delete(b.receives[r.tag], i, i+1)
	}
	if len(b.receives[r.tag]) == 0 {
		delete(b.receives, r.tag)
	}
}

// unlist takes a message off the list of those that wait.
func (b *Box[T]) unlist(m *Message[T]) {
	at := slot{m.From, m.Tag}
	if i := slices.Index(b.waiting[at], m); i >= 0 {
		b.waiting[at] = slices.Delete(b.waiting[at], i, i+1)
	}
	if len(b.waiting[at]) == 0 {
		delete(b.waiting, at)
	}
}

// Receive waits for a message from a member, or from Anyone, with that tag.
func (b *Box[T]) Receive(from, tag int) *Receive[T] {
	b.nth++
	r := &Receive[T]{from: from, tag: tag, nth: b.nth}
	b.settle(r)
	return r
}

// await matches a receive, or lets it wait in its place.
func (b *Box[T]) settle(r *Receive[T]) {
	var first *Message[T]
	for from := range b.senders {
		if all := b.waiting[slot{from, r.tag}]; len(all) > 0 && r.fits(all[0]) && (first == nil || all[0].nth < first.nth) {
			first = all[0]
		}
	}
	if first != nil {
		b.unlist(first)
		r.message, first.to = first, r
		return
	}
	i, _ := slices.BinarySearchFunc(b.receives[r.tag], r.nth, func(o *Receive[T], nth uint64) int { return cmp.Compare(o.nth, nth) })
	b.receives[r.tag] = slices.Insert(b.receives[r.tag], i, r)
}

// Take ends a receive that was matched: the message is its own.
func (b *Box[T]) Take(r *Receive[T]) { b.forget(r.message) }

func (b *Box[T]) forget(m *Message[T]) {
	s := &b.senders[m.From]
	delete(s.known, m.Seq)
	s.bytes -= m.Cost
	if m.offer {
		s.offers--
	}
}

// Cancel ends a receive. What was matched goes back to its place, and to the next that fits.
func (b *Box[T]) Cancel(r *Receive[T]) (matched *Receive[T]) {
	b.unwait(r)
	m := r.message
	if m == nil {
		return nil
	}
	r.message, m.to = nil, nil
	return b.offer(m)
}

// Find gives a message that is in order and was not taken.
func (b *Box[T]) Find(from int, seq uint64) *Message[T] { return b.senders[from].known[seq] }

// Withdraw takes a message back for its sender. Where that is in time it gives the message, if it
// has come. Again are the receives that are matched anew, or wait again.
func (b *Box[T]) Withdraw(from int, seq uint64) (m *Message[T], inTime bool, again []*Receive[T]) {
	s := &b.senders[from]
	if m = s.known[seq]; m != nil {
		b.forget(m)
		r := m.to
		if r == nil {
			b.unlist(m)
			return m, true, nil
		}
		r.message, m.to = nil, nil
		b.settle(r)
		return m, true, []*Receive[T]{r}
	}
	if seq < s.next || s.early[seq] == nil && len(s.early) >= mostEarly {
		return nil, false, nil
	}
	if m = s.early[seq]; m != nil && m.void {
		return nil, false, nil
	}
	if m != nil {
		b.forget(m)
	}
	s.early[seq] = &Message[T]{void: true}
	return m, true, b.order(from)
}

// Drain empties the box, and gives what was in it.
func (b *Box[T]) Drain() (all []*Message[T]) {
	for i := range b.senders {
		s := &b.senders[i]
		for _, m := range s.known {
			all = append(all, m)
		}
		for _, m := range s.early {
			if !m.void {
				all = append(all, m)
			}
		}
		clear(s.known)
		clear(s.early)
		s.bytes, s.offers = 0, 0
	}
	clear(b.waiting)
	return all
}
