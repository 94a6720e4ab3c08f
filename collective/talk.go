package collective

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/collective/internal/postbox"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// talk is one member's part in messages from one to another. The group's lock guards it.
type talk struct {
	box      *postbox.Box[*mail]
	receives map[*postbox.Receive[*mail]]*receiving
	sends    map[sent]*sending
	peers    []account // by rank
}

// account is how this member stands with another one.
type account struct {
	next        uint64 // of the next message to it
	ahead       uint64 // what its window was charged with by messages to it, in all
	taken       uint64 // of that it has received so much
	offers      int    // messages to it that wait here
	got, toldOf uint64 // what its messages here were charged with that are received; what it knows of that
}

// mail is a message that was sent here.
type mail struct {
	parcel
	a *arrival // nil: not here yet
}

// sent names a message that this member has sent.
type sent struct {
	to  int
	seq uint64
}

// sending is a goroutine in Send that waits for its receiver.
type sending struct {
	record record
	wake   chan struct{} // of capacity 1
	wanted bool
	err    error
}

// receiving is a goroutine in Recv.
type receiving struct {
	record record
	wake   chan struct{} // of capacity 1
	err    error
}

func newTalk(members int) talk {
	return talk{
		box: postbox.New[*mail](members), receives: map[*postbox.Receive[*mail]]*receiving{}, sends: map[sent]*sending{}, peers: make([]account, members),
	}
}

// wakeAll has all who wait look at what has become of the group.
func (t *talk) wakeAll() {
	for _, s := range t.sends {
		notify(s.wake)
	}
	for _, r := range t.receives {
		notify(r.wake)
	}
}

// drain gives what nobody will receive any more.
func (t *talk) drain() (rest []*arrival) {
	for _, m := range t.box.Drain() {
		if m.It.a != nil {
			rest = append(rest, m.It.a)
		}
	}
	return rest
}

// sendMessage sends bytes that a parcel describes.
func (g *Group) sendMessage(c context.Context, to, tag int, what parcel, mem []byte) (err error) {
	if to < 0 || to >= len(g.members) {
		return fmt.Errorf("%w: rank %d; the group has ranks 0 to %d", ErrArguments, to, len(g.members)-1)
	}
	if err := checkTag(tag); err != nil {
		return err
	}
	if err := g.whole(c); err != nil {
		return err
	}
	rec := record{talk: &talked{true, to, tag, what}, began: time.Now(), bytes: len(mem)}
	k, s, err := g.enlist(c, &rec)
	if err != nil {
		return err
	}
	n := &note{Talk: &noteTalk{What: talkOffers, Seq: k.seq, Tag: tag, Parcel: what}}
	if s == nil {
		n.Talk.What, n.Slots, n.inline = talkSends, []notePart{{Tensor: -1, N: len(mem)}}, []part{{mem: mem}}
	}
	err = g.say(c, to, n)
	if err == nil && s != nil {
		err = g.hand(c, k, s, mem)
	}
	if err != nil && c.Err() != nil {
		err = g.given(c, to)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s != nil {
		delete(g.talk.sends, k)
		g.talk.peers[to].offers--
	}
	g.finish(&rec, err)
	var refused *MessageError
	if err != nil && !errors.As(err, &refused) && g.desk.Broken() == nil { // it may have arrived, or not
		back := &noteTalk{What: talkWithdraws, Seq: k.seq}
		if s == nil {
			back.Cost = uint64(postbox.Cost(len(mem)))
		}
		g.answerTalk(back, to)
	}
	return err
}

// enlist gives a message its number. s is nil where its bytes go at once.
func (g *Group) enlist(c context.Context, rec *record) (k sent, s *sending, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	to := rec.talk.with
	p := &g.talk.peers[to]
	cost := uint64(postbox.Cost(rec.bytes))
	k = sent{to, p.next}
	if err = g.unreachable(to); err == nil && c.Err() != nil {
		err = g.given(c, to)
	}
	switch {
	case err != nil:
		g.finish(rec, err)
		return k, nil, err
	case rec.bytes <= inlined && p.ahead-p.taken+cost <= postbox.Window:
		p.ahead += cost
	case p.offers >= postbox.MostOffers:
		return k, nil, fmt.Errorf("%w: %d messages to %s wait until it receives them", ErrArguments, p.offers, g.members[to].Worker)
	default:
		s = &sending{record: *rec, wake: make(chan struct{}, 1)}
		g.talk.sends[k] = s
		p.offers++
	}
	p.next++
	return k, s, nil
}

// unreachable says why a member gets no message. The group's lock is held.
func (g *Group) unreachable(rank int) error {
	if err := g.desk.Broken(); err != nil {
		return err
	}
	return g.desk.Left(rank)
}

// hand waits until the receiver wants a message, and sends it.
func (g *Group) hand(c context.Context, k sent, s *sending, mem []byte) error {
	for {
		g.mu.Lock()
		wanted, err := s.wanted, s.err
		if err == nil {
			err = g.unreachable(k.to)
		}
		g.mu.Unlock()
		if err != nil {
			return err
		}
		if wanted {
			break
		}
		select {
		case <-s.wake:
		case <-c.Done():
			return context.Cause(c)
		}
	}
	inline := []part{{mem: mem}}
	at, small, tensors, keep, copied, err := letter(inline, g.near[k.to])
	if err != nil {
		return err
	}
	defer keep.release()
	g.moved.Add(2 * int64(copied))
	if !small {
		inline = nil
	}
	return g.say(c, k.to, &note{Talk: &noteTalk{What: talkHands, Seq: k.seq, Parcel: s.record.talk.what}, Slots: at, inline: inline}, tensors...)
}

// say sends a note, to this member itself too.
func (g *Group) say(c context.Context, to int, n *note, tensors ...transport.Tensor) error {
	if to == g.rank {
		for _, t := range tensors {
			t.Buf.Retain()
		}
		own := *n
		for _, p := range n.inline {
			own.body = append(own.body, p.mem...)
		}
		a, err := unpack(&own, tensors)
		if err == nil {
			g.hear(g.rank, own.Talk, a)
		}
		return err
	}
	sound, done := g.whileSound(c)
	defer done()
	err := g.post(sound, to, n, tensors...)
	switch {
	case errors.Is(err, rpc.ErrPeerLost), errors.Is(err, rpc.ErrPeerLeft):
		g.lose(g.members[to], err)
		return g.Err()
	case err != nil && c.Err() == nil && sound.Err() != nil:
		return g.Err()
	}
	return err
}

// given is the error of a call that its caller has given up.
func (g *Group) given(c context.Context, other int) error {
	if !errors.Is(c.Err(), context.DeadlineExceeded) {
		return context.Cause(c)
	}
	e := &LateError{By: g.members[g.rank].Worker}
	if other >= 0 {
		e.Missing = []string{g.members[other].Worker}
	}
	return e
}

// receiveMessage waits for a message, and copies it to where room says.
func receiveMessage(c context.Context, g *Group, from, tag int, want parcel, room func(count int) []byte) (rank int, err error) {
	if err := there(g); err != nil {
		return -1, fmt.Errorf("collective: receive from %s with tag %d: %w", whom(from), tag, err)
	}
	want.Line = g.known.line()
	m, err := g.awaitMessage(c, from, tag, want)
	if err != nil {
		return -1, fmt.Errorf("collective: receive from %s with tag %d in group %q: %w", whom(from), tag, g.name, err)
	}
	defer m.It.a.release()
	copy(room(m.It.Count), m.It.a.parts[0].mem)
	return m.From, nil
}

func checkTag(tag int) error {
	if tag < 0 {
		return fmt.Errorf("%w: tag %d; expected 0 or more", ErrArguments, tag)
	}
	return nil
}

func whom(rank int) string {
	if rank == Anyone {
		return "anyone"
	}
	return fmt.Sprintf("rank %d", rank)
}

func (g *Group) awaitMessage(c context.Context, from, tag int, want parcel) (m *postbox.Message[*mail], err error) {
	if from != Anyone && (from < 0 || from >= len(g.members)) {
		return nil, fmt.Errorf("%w: rank %d; the group has ranks 0 to %d, and Anyone", ErrArguments, from, len(g.members)-1)
	}
	if err := checkTag(tag); err != nil {
		return nil, err
	}
	rc := &receiving{record: record{talk: &talked{false, from, tag, want}, began: time.Now()}, wake: make(chan struct{}, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.talk.box.Receive(from, tag)
	g.talk.receives[r] = rc
	defer func() {
		delete(g.talk.receives, r)
		g.finish(&rc.record, err)
	}()
	g.matched(r)
	for {
		m = r.Message()
		switch {
		case rc.err != nil:
			return nil, rc.err
		case m != nil && m.State == postbox.Here && g.desk.Broken() == nil:
			g.talk.box.Take(r)
			g.received(m)
			rc.record.bytes = len(m.It.a.parts[0].mem)
			return m, nil
		}
		err = g.desk.Broken()
		if err == nil && (m == nil || m.State != postbox.Here) {
			err = g.nobody(from, m)
		}
		if err == nil && c.Err() != nil {
			err = g.given(c, from)
		}
		if err != nil {
			if next := g.talk.box.Cancel(r); next != nil {
				g.matched(next)
			}
			return nil, err
		}
		g.mu.Unlock()
		select {
		case <-rc.wake:
		case <-c.Done():
		}
		g.mu.Lock()
	}
}

// nobody says why nobody can send what a receive waits for.
func (g *Group) nobody(from int, m *postbox.Message[*mail]) (err error) {
	if m != nil {
		from = m.From
	}
	if from != Anyone {
		return g.desk.Left(from)
	}
	for rank := range g.members {
		if rank != g.rank || len(g.members) == 1 {
			if err = g.desk.Left(rank); err == nil {
				return nil
			}
		}
	}
	return err
}
