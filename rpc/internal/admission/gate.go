package admission

import "sync"

// Gate decides which calls run, wait, and are refused. Calls are of a peer, known by its rank.
type Gate[T comparable] struct {
	mu sync.Mutex
	q  queues[T]
}

// New makes a gate.
func New[T comparable](maxRunning, maxQueued int) *Gate[T] {
	return &Gate[T]{q: queues[T]{maxRunning: maxRunning, maxQueued: maxQueued}}
}

// Arrive lets a call run, or wait; it gives the call that is refused, which may be another.
func (g *Gate[T]) Arrive(peer int, call T) (runs bool, refused T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.q.arrive(peer, call)
}

// Leave takes a call that waits out of its queue; false where it does not wait any more.
func (g *Gate[T]) Leave(peer int, call T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.q.leave(peer, call)
}

// Done says that a call has ended; it gives the one that runs next, false for none.
func (g *Gate[T]) Done() (next T, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.q.done()
}

// Load is how many calls run and wait.
func (g *Gate[T]) Load() (running, queued int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.q.running, g.q.queued
}

// Bounds are how many calls may run and wait.
func (g *Gate[T]) Bounds() (running, queued int) { return g.q.maxRunning, g.q.maxQueued }

// queues are the state machine of a Gate. Peers take turns, each
// with its oldest call first. Where all places to wait are taken, the peer with the longest queue
// loses its youngest.
type queues[T comparable] struct {
	maxRunning, maxQueued int

	running, queued int
	queues          map[int][]T // by peer; none is empty
	turns           []int       // the peers that have a queue, in the order in which they are served
}

// arrive says whether the call runs now; otherwise it waits, unless it is what is refused.
func (a *queues[T]) arrive(peer int, call T) (runs bool, refused T) {
	if a.running < a.maxRunning { // then nobody waits
		a.running++
		return true, refused
	}
	if a.queued >= a.maxQueued {
		longest := a.longest()
		if a.queued == 0 || len(a.queues[longest]) <= len(a.queues[peer])+1 {
			return false, call
		}
		q := a.queues[longest]
		refused = q[len(q)-1]
		a.queues[longest] = q[:len(q)-1]
		a.queued--
	}
	if a.queues == nil {
		a.queues = map[int][]T{}
	}
	if len(a.queues[peer]) == 0 {
		a.turns = append(a.turns, peer)
	}
	a.queues[peer] = append(a.queues[peer], call)
	a.queued++
	return false, refused
}

// longest is the peer with the longest queue; the first in turn of several.
func (a *queues[T]) longest() (peer int) {
	most := 0
	for _, p := range a.turns {
		if n := len(a.queues[p]); n > most {
			peer, most = p, n
		}
	}
	return peer
}

// leave takes a call out of its queue.
func (a *queues[T]) leave(peer int, call T) bool {
	for i, c := range a.queues[peer] {
		if c == call {
			a.remove(peer, i)
			return true
		}
	}
	return false
}

// remove takes the i-th call out of a peer's queue, and the peer out of the turns where it was the
// last.
func (a *queues[T]) remove(peer, i int) {
	var none T
	q := a.queues[peer]
	copy(q[i:], q[i+1:])
	q[len(q)-1] = none
	a.queues[peer] = q[:len(q)-1]
	a.queued--
	if len(q) > 1 {
		return
	}
	delete(a.queues, peer)
	for k, p := range a.turns {
		if p == peer {
			a.turns = append(a.turns[:k], a.turns[k+1:]...)
			return
		}
	}
}

// done ends a call that ran, and gives the one that runs in its place.
func (a *queues[T]) done() (next T, ok bool) {
	if len(a.turns) == 0 {
		a.running--
		return next, false
	}
	peer := a.turns[0]
	next = a.queues[peer][0]
	a.remove(peer, 0)
	if len(a.turns) > 0 && a.turns[0] == peer { // it has more, and is served after the others
		a.turns = append(a.turns[1:], peer)
	}
	return next, true
}
