package collective

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/collective/internal/postbox"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
)

// Anyone is in place of a rank where a message of any member will do.
const Anyone = postbox.Anyone

// Send sends x to a member, which receives it with the same tag, of 0 and more. Messages of one tag
// arrive in the order in which they were sent; tags do not hold one another up. A small message (16
// KiB) may wait at its receiver: Send returns at once, and x may be changed. Of any other, and
// where 4 MiB wait there already, Send waits until the member receives it. So where two members
// send each other large arrays, one of them receives first, or both send in a goroutine of their
// own. A member may send to itself.
//
// Send fails with a [MessageError] where the receiver expects something else and it can hear of it;
// with a [LateError] at c's deadline; and with a [LostError] or ErrAborted where the receiver is
// gone. A message that was given up is never received.
func Send[E Element](c context.Context, g *Group, to, tag int, x []E) error {
	if err := there(g); err != nil {
		return fmt.Errorf("collective: send to rank %d with tag %d: %w", to, tag, err)
	}
	err := g.sendMessage(c, to, tag, parcel{Dtype: device.DtypeOf[E](), Count: len(x), Line: g.known.line()}, device.Bytes(x))
	if err != nil {
		return fmt.Errorf("collective: send to rank %d with tag %d in group %q: %w", to, tag, g.name, err)
	}
	return nil
}

// Recv receives a message of a member, or of Anyone, with that tag into x, and says who sent it. It
// fails with a [MessageError], and the message is gone, where it has another length or dtype; and
// as Send does. Where it is given up the message waits for the next one.
func Recv[E Element](c context.Context, g *Group, from, tag int, x []E) (rank int, err error) {
	return receiveMessage(c, g, from, tag, parcel{Dtype: device.DtypeOf[E](), Count: len(x)}, func(n int) []byte {
		return device.Bytes(x)
	})
}

// RecvNew receives a message of any length.
func RecvNew[E Element](c context.Context, g *Group, from, tag int) (x []E, rank int, err error) {
	rank, err = receiveMessage(c, g, from, tag, parcel{Dtype: device.DtypeOf[E](), Count: -1}, func(n int) []byte {
		x = make([]E, n)
		return device.Bytes(x)
	})
	return x, rank, err
}

// parcel is what a message holds, or what its receiver expects: any Count where that is −1.
type parcel struct {
	_     struct{} `cbor:",toarray"`
	Dtype device.Dtype
	Count int
	Line  string // of the user's code
}

// fits says whether a receiver gets what it expects.
func (p parcel) fits(want parcel) bool {
	return p.Dtype == want.Dtype && (want.Count < 0 || p.Count == want.Count)
}

func (p parcel) String() string { return p.contents() + " at " + p.Line }

func (p parcel) contents() string {
	if p.Count < 0 {
		return fmt.Sprintf("any number of %v", p.Dtype)
	}
	return fmt.Sprintf("%d %v", p.Count, p.Dtype)
}

// MessageError says that a member has sent something else than another expects.
type MessageError struct {
	From, To, Tag  int    // ranks, and the message's tag
	Sent, Expected string // what, and where in the user's code
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("%v: rank %d sends rank %d %s with tag %d, which expects %s", ErrMismatch, e.From, e.To, e.Sent, e.Tag, e.Expected)
}

// Unwrap gives ErrMismatch.
func (e *MessageError) Unwrap() error { return ErrMismatch }

// matched looks at what a receive was matched with: is it what it expects, is it here? The group's
// lock is held.
func (g *Group) matched(r *postbox.Receive[*mail]) {
	rc, m := g.talk.receives[r], r.Message()
	if rc == nil || m == nil {
		return
	}
	notify(rc.wake)
	if !m.It.fits(rc.record.talk.what) {
		rc.err = &MessageError{From: m.From, To: g.rank, Tag: m.Tag, Sent: m.It.String(), Expected: rc.record.talk.what.String()}
		g.talk.box.Take(r)
		g.received(m)
		if m.State != postbox.Here {
			g.answerTalk(&noteTalk{What: talkRefuses, Seq: m.Seq, Tag: m.Tag, Parcel: rc.record.talk.what}, m.From)
		}
		if m.It.a != nil {
			m.It.a.release()
		}
		return
	}
	if m.State == postbox.Offered {
		m.State = postbox.Wanted
		g.answerTalk(&noteTalk{What: talkWants, Seq: m.Seq}, m.From)
	}
}

// received gives the sender its window back, a quarter at a time.
func (g *Group) received(m *postbox.Message[*mail]) { g.refund(m.From, uint64(m.Cost)) }

func (g *Group) refund(to int, cost uint64) {
	p := &g.talk.peers[to]
	if p.got += cost; p.got-p.toldOf >= postbox.Window/4 {
		p.toldOf = p.got
		g.answerTalk(&noteTalk{What: talkRefunds, Cost: p.got}, to)
	}
}

// answerTalk sends a note beside what goes on. The group's lock is held.
func (g *Group) answerTalk(n *noteTalk, to int) {
	if to != g.rank {
		g.send(note{Talk: n}, to)
		return
	}
	g.runs.Go(func() { g.hear(g.rank, n, &arrival{}) })
}

// hear takes a note of another member's about a message. It takes over the arrival.
func (g *Group) hear(from int, n *noteTalk, a *arrival) {
	g.mu.Lock()
	kept, err := g.heed(from, n, a)
	g.mu.Unlock()
	if !kept {
		a.release()
	}
	if err != nil {
		g.lose(g.members[from], err)
	}
}

func (g *Group) heed(from int, n *noteTalk, a *arrival) (kept bool, err error) {
	t := &g.talk
	if g.desk.Broken() != nil {
		return false, nil
	}
	switch n.What {
	case talkSends, talkOffers:
		m := &postbox.Message[*mail]{From: from, Seq: n.Seq, Tag: n.Tag, State: postbox.Offered, It: &mail{parcel: n.Parcel}}
		if n.What == talkSends {
			if err := n.Parcel.holds(a); err != nil {
				return false, err
			}
			m.State, m.Cost, m.It.a = postbox.Here, postbox.Cost(len(a.parts[0].mem)), a
		}
		matched, taken, err := t.box.Arrive(m)
		for _, r := range matched {
			g.matched(r)
		}
		return taken && n.What == talkSends, err
	case talkHands:
		m := t.box.Find(from, n.Seq)
		if m == nil || m.State != postbox.Wanted {
			return false, nil // it was taken back
		}
		if err := m.It.holds(a); err != nil {
			return false, err
		}
		m.State, m.It.a = postbox.Here, a
		for r, rc := range t.receives {
			if r.Message() == m {
				notify(rc.wake)
			}
		}
		return true, nil
	case talkWithdraws:
		m, inTime, again := t.box.Withdraw(from, n.Seq)
		if m != nil && m.It.a != nil {
			m.It.a.release()
		}
		if inTime {
			g.refund(from, min(n.Cost, uint64(postbox.Cost(inlined))))
		}
		for _, r := range again {
			g.matched(r)
		}
	case talkWants, talkRefuses:
		if s := t.sends[sent{from, n.Seq}]; s != nil {
			s.wanted = true
			if n.What == talkRefuses {
				s.err = &MessageError{From: g.rank, To: from, Tag: n.Tag, Sent: s.record.talk.what.String(), Expected: n.Parcel.String()}
			}
			notify(s.wake)
		}
	case talkRefunds:
		p := &t.peers[from]
		if n.Cost > p.taken && n.Cost <= p.ahead {
			p.taken = n.Cost
		}
	}
	return false, nil
}

// holds says whether bytes that have come are those that were announced.
func (p parcel) holds(a *arrival) error {
	if len(a.parts) != 1 || len(a.parts[0].mem) != p.Count*p.Dtype.Size() {
		return fmt.Errorf("%w: a message of %d parts that does not hold %v", rpc.ErrProtocol, len(a.parts), p)
	}
	return nil
}

func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// noteTalk is what a note says of a message from one member to another.
type noteTalk struct {
	What   uint8  `cbor:"1,keyasint"`
	Seq    uint64 `cbor:"2,keyasint,omitempty"`
	Tag    int    `cbor:"3,keyasint,omitempty"`
	Parcel parcel `cbor:"4,keyasint,omitempty"`
	Cost   uint64 `cbor:"5,keyasint,omitempty"` // what a message was charged with that is taken back; all that was received
}

// What a note says of a message.
const (
	talkSends     = iota + 1 // here it is
	talkOffers               // it waits here until it is wanted
	talkWants                // send what was offered
	talkRefuses              // it is not what is expected
	talkHands                // here is what was wanted
	talkWithdraws            // its sender has given it up
	talkRefunds              // so much was received
)

// plausible reads what another member says, which may be anything.
func (n *noteTalk) plausible() error {
	p := n.Parcel
	describes := n.What == talkSends || n.What == talkOffers || n.What == talkHands
	if n.What < talkSends || n.What > talkRefunds || n.Tag < 0 || describes && (!p.Dtype.Valid() || p.Count < 0 || p.Count > maxCount) {
		return fmt.Errorf("%w: a note of kind %d about a message of %d %v with tag %d", rpc.ErrProtocol, n.What, p.Count, p.Dtype, n.Tag)
	}
	return nil
}

// maxCount bounds the elements of a message.
const maxCount = 1 << 48
