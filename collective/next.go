package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// Without makes the group's next generation of those that are left: without the members that are
// lost or have closed this group, and without those named. All that go on call it, also after the
// group has ended by a loss, and each gives what it knows; ranks keep their order. The members
// agree, and the job's store confirms one membership, so that two parts of a group that cannot
// reach each other never both go on. This group is closed then, and the new one uses its links and
// lanes.
//
// Where more is lost meanwhile the members agree anew; where that comes too late for the agreement
// the new group has ended when it is given, and its Without goes on from there. Without fails with
// ErrExcluded where the others go on without this worker, with ErrUnconfirmed where the store does
// not answer, and with a [LateError] that names who has not come at the deadline. After the last
// two it may be called again; before Close, which gives all up.
func (g *Group) Without(c context.Context, lost ...string) (*Group, error) {
	if err := there(g); err != nil {
		return nil, fmt.Errorf("collective: next generation: %w", err)
	}
	next, err := g.without(c, lost)
	if err != nil {
		return nil, g.ofNext("without", lost, err)
	}
	return next, nil
}

// ofNext says of which next generation an error is.
func (g *Group) ofNext(how string, names []string, err error) error {
	if len(names) == 0 {
		return fmt.Errorf("collective: group %q: %w", g.name, err)
	}
	return fmt.Errorf("collective: group %q %s %v: %w", g.name, how, names, err)
}

func (g *Group) without(c context.Context, lost []string) (*Group, error) {
	if err := g.whole(c); err != nil {
		return nil, err
	}
	var unwanted []ballot.Who
	for _, name := range lost {
		i := slices.IndexFunc(g.members, func(m Member) bool { return m.Worker == name })
		if i < 0 || i == g.rank {
			return nil, fmt.Errorf("%w: %q is not another member of the group", ErrArguments, name)
		}
		unwanted = append(unwanted, g.members[i].who())
		g.lose(g.members[i], fmt.Errorf("%w: %s goes on without it", ErrAborted, g.w.Name()))
	}
	return g.succeed(c, unwanted, nil)
}

// With makes the group's next generation of its members and newcomers, which call Enlist. All
// members call it, with the same names; the newcomers have the highest ranks, in the order of their
// ranks in the job. It waits for newcomers that have not joined the job yet. Until it succeeds this
// group lives on; then it is closed. It fails as Without does. Where a member is lost meanwhile the
// next generation is made without it, and so it is with a newcomer.
func (g *Group) With(c context.Context, newcomers ...string) (*Group, error) {
	if err := there(g); err != nil {
		return nil, fmt.Errorf("collective: next generation: %w", err)
	}
	var guests []ballot.Who
	err := g.whole(c)
	if err == nil {
		guests, err = g.await(c, newcomers)
	}
	var next *Group
	if err == nil {
		next, err = g.succeed(c, nil, guests)
	}
	if err != nil {
		return nil, g.ofNext("with", newcomers, err)
	}
	return next, nil
}

// await waits until newcomers have joined the job.
func (g *Group) await(c context.Context, names []string) (guests []ballot.Who, err error) {
	again := time.NewTicker(inviting)
	defer again.Stop()
	for len(names) > 0 {
		info, err := g.w.Find(c, names[0])
		who := whoIs(info)
		switch {
		case err == nil && (g.roll.Has(who) || slices.Contains(guests, who)):
			return nil, fmt.Errorf("%w: %s is a member already, or named twice", ErrArguments, who.Name)
		case err == nil:
			guests, names = append(guests, who), names[1:]
			continue
		case !errors.Is(err, rpc.ErrUnknownWorker) && !errors.Is(err, rpc.ErrPeerLost) && !errors.Is(err, rpc.ErrPeerLeft):
			return nil, err
		}
		select {
		case <-again.C:
		case <-g.life.Done():
			return nil, ErrClosed
		case <-c.Done():
			if errors.Is(c.Err(), context.DeadlineExceeded) {
				return nil, &LateError{By: g.w.Name(), Missing: names}
			}
			return nil, context.Cause(c)
		}
	}
	return guests, nil
}

// succeed makes the next generation.
func (g *Group) succeed(c context.Context, unwanted, guests []ballot.Who) (*Group, error) {
	v, busy := g.voting, false
	v.with(func() { busy, v.busy = v.busy, true })
	if busy {
		return nil, fmt.Errorf("%w: the next generation is being made already", ErrArguments)
	}
	defer v.with(func() { v.busy = false })
	next, err := v.agree(c, func(b *ballot.Ballot) { b.Begin(unwanted, guests) })
	if err != nil {
		if errors.Is(err, ErrExcluded) {
			g.breakUp(err)
		}
		return nil, err
	}
	g.retire(next)
	return next, nil
}

// vote takes what a member, or a newcomer, says of the next generation.
func (g *Group) vote(from rpc.WorkerInfo, header []byte, tensors []transport.Tensor) {
	(&transport.Message{Tensors: tensors}).Release() // there are none, where the sender is of the job
	var n vote
	if n.decode(header) == nil && g.voting.hear(from, n) {
		g.voting.mu.Lock()
		err := g.voting.outLocked()
		g.voting.mu.Unlock()
		g.breakUp(err)
	}
}

// votes follows the name of a group's service where its members agree on the next generation.
const votes = "/next"

// posts takes what workers post to a service.
type posts = func(from rpc.WorkerInfo, header []byte, tensors []transport.Tensor)

// vote is what is posted there. A newcomer learns from it which group wants it.
type vote struct {
	Lineage string      `cbor:"1,keyasint"`
	Service string      `cbor:"2,keyasint"`
	Base    ballot.Roll `cbor:"3,keyasint"`
	Host    string      `cbor:"4,keyasint,omitempty"`
	Said    ballot.Said `cbor:"5,keyasint"`
}

// maxVoters bounds who may be in a list of a vote.
const maxVoters = 1 << 16

func (v *vote) decode(b []byte) error {
	if err := decoding().Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", rpc.ErrProtocol, err)
	}
	lists := [][]ballot.Who{v.Base.Members, v.Said.Lost, v.Said.New}
	if v.Said.Next != nil {
		lists = append(lists, v.Said.Next.Members)
	}
	for _, list := range lists {
		if len(list) > maxVoters {
			return fmt.Errorf("%w: a list of %d voters", rpc.ErrProtocol, len(list))
		}
	}
	return nil
}

// encode is for votes and what the store keeps of them: numbers, texts and lists of them, of which
// there is no value that cannot be encoded.
func encode(value any) []byte {
	b, err := cbor.Marshal(value)
	if err != nil {
		panic(err) // see above
	}
	return b
}

// enlisting precedes the name of a group in that of the service by which newcomers are wanted.
const enlisting = "collective/enlist/"

// Enlist waits until the members of a group of that name take this worker in, by Group.With, and
// gives the generation of which it is a member. A newcomer needs to know neither the members nor
// what they have done so far; who was lost and has joined the job again is one. A worker enlists
// once at a time for a name.
func Enlist(c context.Context, w *rpc.Worker, name string) (*Group, error) {
	err := startable(w, name)
	var g *Group
	if err == nil {
		g, err = enlist(c, w, name)
	}
	if err != nil {
		return nil, fmt.Errorf("collective: enlist for group %q: %w", name, err)
	}
	return g, nil
}

func enlist(c context.Context, w *rpc.Worker, name string) (*Group, error) {
	me, err := w.Find(c, w.Name())
	if err != nil {
		return nil, err
	}
	r := &recruit{w: w, name: name, me: whoIs(me), wanted: make(chan struct{}, 1)}
	stop, err := rpc.OnPost(w, enlisting+name, r.receive)
	if err != nil {
		return nil, fmt.Errorf("this worker enlists already: %w", err)
	}
	defer stop()
	c, cancel := context.WithCancel(c)
	defer cancel()
	events := w.Peers(c)
	for {
		select {
		case <-r.wanted:
		case _, ok := <-events:
			if !ok && c.Err() == nil {
				return nil, rpc.ErrLeft
			}
			continue
		case <-c.Done():
			if errors.Is(c.Err(), context.DeadlineExceeded) {
				return nil, fmt.Errorf("%w: nobody has taken this worker in", rpc.ErrTimeout)
			}
			return nil, context.Cause(c)
		}
		v := r.chosen()
		g, err := v.agree(c, func(b *ballot.Ballot) { b.Begin(nil, nil) })
		if err != nil {
			v.runs.Close() // the members hear of it
		}
		v.drop()
		r.forget()
		if !errors.Is(err, ErrExcluded) {
			return g, err
		}
	}
}

// recruit is a worker that would be a member.
type recruit struct {
	w      *rpc.Worker
	name   string
	me     ballot.Who
	wanted chan struct{} // of capacity 1

	mu     sync.Mutex
	voting *voting // of the group that wants it
}

func (r *recruit) chosen() *voting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.voting
}

func (r *recruit) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.voting = nil
}

// receive takes what members say. Others than those of the first group that comes invite again; so
// do those of a later generation of it, which has been made without this worker.
func (r *recruit) receive(from rpc.WorkerInfo, header []byte, tensors []transport.Tensor) {
	(&transport.Message{Tensors: tensors}).Release()
	var n vote
	if n.decode(header) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	invited := n.Base.Has(whoIs(from)) && !n.Base.Has(r.me) && n.Said.Invites(r.me)
	switch {
	case invited && r.voting == nil:
		r.voting = newVoting(r.w, r.name, n.Base, r.me)
		r.voting.identify(n.Service, n.Lineage)
		notify(r.wanted)
	case invited && r.voting.lineage == n.Lineage && r.voting.base.Generation < n.Base.Generation:
		r.voting.pass()
	}
	if r.voting != nil && r.voting.service == n.Service {
		r.voting.hear(from, n)
	}
}
