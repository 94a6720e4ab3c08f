package rpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/wire"
)

// references is the shell around a worker's refs.Machine: values, goroutines that wait for them,
// and messages.
type references struct {
	w  *Worker
	me refs.Node

	// mu guards what follows. Worker.mu may not be taken with it held.
	mu      sync.Mutex
	m       *refs.Machine
	values  map[refs.ID]*owned
	waiting map[refs.Hold]*ref // arrived, and not confirmed by the owner yet
	timer   *time.Timer        // wakes the machine
	wakes   time.Time          // when; zero where it does not
	changed chan struct{}      // made by who waits, closed when anything happens
	closed  bool
}

// owned is a value that this worker keeps for references.
type owned struct {
	ready chan struct{} // closed when value or err is set
	value reflect.Value
	err   error
}

func newReferences(w *Worker) *references {
	me := refs.Node{Rank: w.rank, Epoch: w.epoch}
	return &references{
		w: w, me: me, m: refs.New(me, 0), values: map[refs.ID]*owned{}, waiting: map[refs.Hold]*ref{},
	}
}

// meet says that there is a worker.
func (rs *references) meet(n refs.Node) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.m.Meet(n)
}

// do tells the machine what happened, and does what it says.
func (rs *references) do(event func(m *refs.Machine, now time.Time)) {
	rs.mu.Lock()
	event(rs.m, time.Now())
	todo := rs.m.Actions()
	var settled []*ref
	var errs []error
	for _, a := range todo {
		switch a.Kind {
		case refs.Freed:
			delete(rs.values, a.ID)
		case refs.Confirmed, refs.Denied:
			if ref := rs.waiting[a.Hold]; ref != nil {
				settled, errs = append(settled, ref), append(errs, a.Err)
				delete(rs.waiting, a.Hold)
			}
		}
	}
	rs.wakeLocked()
	if rs.changed != nil {
		close(rs.changed)
		rs.changed = nil
	}
	rs.mu.Unlock()
	for i, ref := range settled {
		ref.resolve(rs.why(ref.id.Owner, errs[i]))
	}
	for _, a := range todo {
		if a.Kind == refs.Send {
			rs.send(a)
		}
	}
}

// wakeLocked sets the timer for what the machine waits for.
func (rs *references) wakeLocked() {
	if rs.closed {
		return
	}
	at, _ := rs.m.Next()
	if at.Equal(rs.wakes) {
		return
	}
	rs.wakes = at
	switch {
	case at.IsZero():
		rs.timer.Stop()
	case rs.timer == nil:
		rs.timer = time.AfterFunc(time.Until(at), rs.tick)
	default:
		rs.timer.Reset(time.Until(at))
	}
}

func (rs *references) tick() {
	rs.mu.Lock()
	rs.wakes = time.Time{}
	rs.mu.Unlock()
	rs.do((*refs.Machine).Tick)
}

// tryTimeout is how long an answer to control messages is awaited before they are sent again; it
// doubles with each failure, a few times, for the path may be slow.
const tryTimeout = 3 * time.Second

// send tries once to deliver control messages.
func (rs *references) send(a refs.Action) {
	w := rs.w
	p := w.refs.at(a.To)
	if p == nil {
		return
	}
	w.members.Run(func() {
		c, cancel := context.WithTimeout(w.life, tryTimeout<<min(a.Failures, 3))
		defer cancel()
		var answers []refs.Answer
		reply, err := w.calls.ask(c, p, wire.KindRefs, wire.RefsHeader{Messages: a.Messages})
		if err == nil {
			err = wire.Decode(reply.Value, &answers)
		}
		rs.do(func(m *refs.Machine, now time.Time) {
			if err != nil {
				m.Failed(now, a.To, a.Packet)
			} else {
				m.Answered(now, a.To, a.Packet, answers)
			}
		})
		if err != nil {
			w.log.Debug("could not tell of references", "worker", w.name, "peer", p.Name, "err", err)
		}
	})
}

// at is the peer in that life of it, nil where it is not known.
func (rs *references) at(n refs.Node) *membership.Peer {
	if p := rs.w.members.PeerAt(n.Rank); p != nil && p.Node == n {
		return p
	}
	return nil
}

// close ends all waits for values, and sends nothing more.
func (rs *references) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	if rs.timer != nil {
		rs.timer.Stop()
	}
}

// why says what the machine's errors about a worker mean to the user.
func (rs *references) why(owner refs.Node, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, refs.ErrLost):
		if p := rs.at(owner); p != nil {
			if gone := p.Lost(); gone != nil {
				return gone
			}
		}
		return fmt.Errorf("%w: worker %d of the reference", ErrPeerLost, owner.Rank)
	case errors.Is(err, refs.ErrGone), errors.Is(err, refs.ErrUnready):
		return fmt.Errorf("%w: %w", ErrReleased, err)
	}
	return fmt.Errorf("%w: %w", ErrProtocol, err)
}

// receive takes a peer's control messages.
func (rs *references) receive(from *membership.Peer, msgs []refs.Message) (answers []refs.Answer, err error) {
	rs.do(func(m *refs.Machine, now time.Time) { answers, err = m.Receive(now, from.Node, msgs) })
	return answers, rs.why(from.Node, err)
}

// own makes this worker the owner of a value.
func (rs *references) own(v reflect.Value) (h refs.Hold, id refs.ID) {
	rs.do(func(m *refs.Machine, _ time.Time) {
		h, id = m.Own()
		o := &owned{ready: make(chan struct{}), value: v}
		close(o.ready)
		rs.values[id] = o
	})
	return h, id
}

func (rs *references) release(h refs.Hold) {
	rs.do(func(m *refs.Machine, now time.Time) { m.Release(now, h) })
}

// serve makes room for a value that a call is about to make; made must follow.
func (rs *references) serve(from *membership.Peer, id refs.ID) (err error) {
	rs.do(func(m *refs.Machine, _ time.Time) {
		if err = m.Serve(from.Node, id); err == nil {
			rs.values[id] = &owned{ready: make(chan struct{})}
		}
	})
	return rs.why(from.Node, err)
}

// made gives the value, or why there is none; only the first time counts.
func (rs *references) made(id refs.ID, v reflect.Value, err error) {
	rs.do(func(m *refs.Machine, _ time.Time) {
		o := rs.values[id]
		if o == nil || o.value.IsValid() || o.err != nil {
			return
		}
		if o.value, o.err = v, err; err != nil {
			o.value = reflect.Value{}
		}
		close(o.ready)
		m.Made(id, err == nil)
	})
}

// value waits for a value that is here.
func (rs *references) value(c context.Context, id refs.ID) (reflect.Value, error) {
	rs.mu.Lock()
	o := rs.values[id]
	rs.mu.Unlock()
	switch {
	case o == nil && id.Owner.Rank == rs.me.Rank && id.Owner != rs.me: // of another life of this worker
		return reflect.Value{}, fmt.Errorf("%w: %s was replaced, and the values that it owned are gone", ErrPeerLost, rs.w.name)
	case o == nil:
		return reflect.Value{}, fmt.Errorf("%w: the value is gone", ErrReleased)
	}
	select {
	case <-o.ready:
		return o.value, o.err
	case <-c.Done():
		return reflect.Value{}, ctx.AsTimeout(context.Cause(c))
	}
}

// answer marks a caller's ticket as used; it fails where the caller has given up.
func (rs *references) answer(to *membership.Peer, ticket uint64) (err error) {
	rs.do(func(m *refs.Machine, _ time.Time) { err = m.Answer(to.Node, ticket) })
	return rs.why(to.Node, err)
}

// ticket numbers a call whose answer may bring references.
func (rs *references) ticket(to *membership.Peer) (n uint64) {
	rs.do(func(m *refs.Machine, _ time.Time) { n = m.Ticket(to.Node) })
	return n
}

// abandon says that such a call failed; what its answer brings, or would, is not taken.
func (rs *references) abandon(to *membership.Peer, ticket uint64) {
	if ticket != 0 {
		rs.do(func(m *refs.Machine, now time.Time) { m.Abandon(now, to.Node, ticket) })
	}
}

// creation is the share of a worker that asks another to make a value.
type creation struct {
	hold refs.Hold
	id   refs.ID
}

func (k *creation) begin(w *Worker, owner *membership.Peer) (err error) {
	w.refs.do(func(m *refs.Machine, _ time.Time) { k.hold, k.id, err = m.Create(owner.Node) })
	return w.refs.why(owner.Node, err)
}

// end says how the call ended, and gives the error for whoever uses the reference.
func (k *creation) end(w *Worker, err error) error {
	w.refs.do(func(m *refs.Machine, now time.Time) { m.Created(now, k.hold, err == nil) })
	var there *RemoteError
	if err != nil && !errors.As(err, &there) {
		return fmt.Errorf("the creation of the value may have failed: %w", err)
	}
	return err
}

// share gives the receiver of a message a share in a reference, as soon as this worker's own is
// confirmed.
func (rs *references) share(c context.Context, r *ref, to *membership.Peer, ticket uint64) (s refs.Share, err error) {
	if r.w != nil && r.w != rs.w {
		return s, fmt.Errorf("%w: %v belongs to another worker of this process", ErrArguments, r)
	}
	if err := r.settled(c); err != nil {
		return s, err
	}
	rs.do(func(m *refs.Machine, _ time.Time) { s, err = m.Share(r.hold, to.Node, ticket) })
	return s, rs.why(to.Node, err)
}

// hold takes the shares that a message brings, and waits until their owners have confirmed them.
func (rs *references) hold(c context.Context, from *membership.Peer, shares []refs.Share) (held []codec.Ref, err error) {
	if len(shares) == 0 {
		return nil, nil
	}
	if len(shares) > codec.MaxRefs {
		return nil, fmt.Errorf("%w: %d references in one message; %d are allowed", ErrProtocol, len(shares), codec.MaxRefs)
	}
	for _, s := range shares {
		rs.w.members.Seek(c, s.ID.Owner.Rank) // who has just joined may not have been heard of yet
	}
	var lost refs.Node
	rs.do(func(m *refs.Machine, now time.Time) {
		for _, s := range shares {
			h, confirmed, aerr := m.Arrive(now, from.Node, s)
			if aerr != nil {
				err, lost = aerr, s.ID.Owner
				return
			}
			r := rs.newRef(h, s.ID, confirmed)
			if !confirmed {
				rs.waiting[h] = r
			}
			held = append(held, (*pinnable)(r))
		}
	})
	if err != nil {
		err = fmt.Errorf("a reference that %s sent: %w", from.Name, rs.why(lost, err))
	}
	for _, h := range held {
		if r := (*ref)(h.(*pinnable)); err == nil {
			if err = r.settled(c); err != nil {
				err = fmt.Errorf("asking %s for a share: %w", r.Owner(), err)
			}
		}
	}
	if err != nil {
		for _, r := range held {
			r.Release()
		}
		return nil, err
	}
	return held, nil
}
