package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// enlisting precedes the name of a group in that of the service by which newcomers are wanted.
const enlisting = "collective/enlist/"

// Enlist waits until the members of a group of that name take this worker in, by Group.With, and
// gives the generation of which it is a member. A newcomer needs to know neither the members nor
// what they have done so far; who was lost and has joined the job again is one. A worker enlists
// once at a time for a name.
func Enlist(c context.Context, w *rpc.Worker, name string) (*Group, error) {
	g, err := enlist(c, w, name)
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

// receive takes what members say. Others than those of the first group that comes invite again.
func (r *recruit) receive(from rpc.WorkerInfo, header []byte, tensors []transport.Tensor) {
	(&transport.Message{Tensors: tensors}).Release()
	var n vote
	if n.decode(header) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	invited := n.Base.Has(whoIs(from)) && !n.Base.Has(r.me) && n.Said.Here && n.Said.Next == nil
	if r.voting == nil && invited {
		r.voting = newVoting(r.w, r.name, n.Service, n.Lineage, n.Base, r.me)
		notify(r.wanted)
	}
	if r.voting != nil && r.voting.service == n.Service {
		r.voting.hear(from, n)
	}
}
