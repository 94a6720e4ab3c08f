package collective

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// fail ends an operation here, and tells the others where that is news.
func (g *Group) fail(k desk.Key, err error) {
	g.mu.Lock()
	news := g.desk.Fail(k, err)
	var mismatch *MismatchError
	var closed *closedError
	if errors.As(err, &mismatch) || errors.As(err, &closed) || errors.Is(err, desk.ErrAhead) {
		news = true // found by the desk, which has told nobody
	}
	g.wake(k)
	g.heardOf.Broadcast()
	g.mu.Unlock()
	if news && !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
		g.tell(note{Scope: k.Scope, N: k.N, Part: k.Part, Failure: packFailure(err)}, g.rank)
	}
}

// tell sends a failure to all members but this one and one more, and does not wait.
func (g *Group) tell(n note, but int) {
	for _, m := range g.members {
		if m.Rank != g.rank && m.Rank != but {
			g.send(n, m.Rank)
		}
	}
}

// send posts a note beside what goes on. Who cannot be reached finds out itself.
func (g *Group) send(n note, to int) {
	select {
	case <-g.coming.named:
	default:
		return // nobody can know of it yet
	}
	g.runs.Go(func() {
		c, cancel := context.WithTimeout(g.life, patience)
		defer cancel()
		_ = g.post(c, to, &n)
	})
}

// whileSound is c until the group has failed: what is on its way to a member then, which may be the
// one that is lost, is of no use. The caller calls done in the end.
func (g *Group) whileSound(c context.Context) (sound context.Context, done func()) {
	sound, cancel := context.WithCancel(c)
	stop := context.AfterFunc(g.sound, cancel)
	return sound, func() {
		stop()
		cancel()
	}
}

// patience is for how long a member is tried that is to hear of a failure.
const patience = 10 * time.Second

func (g *Group) post(c context.Context, rank int, n *note, tensors ...transport.Tensor) error {
	g.mu.Lock()
	g.notes[rank].sent++
	g.mu.Unlock()
	b := g.buffers.Get().(*bytes.Buffer)
	defer g.buffers.Put(b)
	b.Reset()
	n.encode(b)
	return rpc.Post(c, g.w, g.members[rank].Worker, g.service, b.Bytes(), tensors...)
}

// receive takes what a member has sent.
func (g *Group) receive(from rpc.WorkerInfo, header []byte, tensors []transport.Tensor) {
	rank := -1
	for _, m := range g.members {
		if m.Worker == from.Name && m.Incarnation == from.Incarnation {
			rank = m.Rank
		}
	}
	var n note
	err := n.decode(header, len(g.members))
	a, uerr := unpack(&n, tensors)
	if rank < 0 || err != nil || uerr != nil {
		if a != nil {
			a.release()
		}
		if rank >= 0 {
			g.lose(g.members[rank], errors.Join(err, uerr))
		}
		return
	}
	k := n.key()
	defer g.count(rank, &n)
	if n.Failure != nil {
		a.release()
		g.heard(k, n.Failure, g.members[rank])
		return
	}
	if n.Closed {
		a.release()
		return
	}
	if n.Talk != nil {
		g.hear(rank, n.Talk, a)
		return
	}
	if n.Ask {
		a.release()
		g.answer(k, rank)
		return
	}
	g.mu.Lock()
	call := n.Call.call()
	w := g.waits[k]
	kept, failure := g.desk.Arrive(g.rank, k, call, desk.Mail{From: rank, Step: n.Step}, a, g.weight(rank, &n, tensors))
	if kept && w == nil {
		w = newWait()
		g.waits[k] = w
	}
	if w != nil {
		if call.Left > 0 {
			w.bound(time.Now().Add(call.Left), rank)
		}
		w.notify()
	}
	g.present(w, rank)
	g.mu.Unlock()
	if !kept {
		a.release()
	}
	if failure != nil {
		g.fail(k, failure)
	}
}

// count counts a note that was taken, and ends the group where it was the last of a member that has
// closed it.
func (g *Group) count(rank int, n *note) {
	g.mu.Lock()
	t := &g.notes[rank]
	if n.Closed {
		t.closed, t.last = true, n.Sent
		notify(g.leaving)
	} else {
		t.got++
	}
	if t.left = t.closed && t.got >= t.last; t.left {
		g.desk.Leave(rank, &closedError{g.members[rank].Worker})
		g.talk.wakeAll()
		for _, w := range g.waits {
			w.notify()
		}
	}
	g.mu.Unlock()
	if n.Leaves {
		g.voting.left(g.members[rank])
	}
}

// heard takes a failure that a member told of.
func (g *Group) heard(k desk.Key, f *noteFailure, from Member) {
	err := f.failure(k, from)
	if f.Group {
		g.breakUp(err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.desk.Fail(k, err)
	g.wake(k)
	g.heardOf.Broadcast()
}
