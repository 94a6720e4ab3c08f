package membership

import (
	"cmp"
	"context"
	"slices"

	"github.com/weft-project/weft/rpc/internal/roster"
)

// MaxWatched is how many events wait for a slow watcher.
const MaxWatched = 1024

// Change is what has become of a peer.
type Change struct {
	Who    *Peer
	State  roster.State
	Cause  error // why the worker is gone
	Missed int   // how many changes before this one were dropped
}

// watcher is a queue of changes; it is guarded by the lock of Members.
type watcher struct {
	queue  []Change
	missed int
	wake   chan struct{} // holds one
}

func (x *watcher) enqueue(e Change) {
	if len(x.queue) == MaxWatched {
		x.missed++
		x.queue = x.queue[1:]
	}
	x.queue = append(x.queue, e)
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Subscribe tells who comes and goes, until c or this worker ends; then the channel is closed.
// First come the workers that are there, by rank.
func Subscribe[E any](c context.Context, ms *Members, as func(Change) E) <-chan E {
	out := make(chan E)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.closed {
		close(out)
		return out
	}
	x := &watcher{wake: make(chan struct{}, 1)}
	for _, p := range ms.sortedLocked() {
		if p.Rank != ms.Me.Rank && p.gone == nil {
			x.enqueue(Change{Who: p, State: roster.Known})
		}
	}
	ms.watchers[x] = struct{}{}
	ms.work.Go(func() { feed(c, ms, x, out, as) })
	return out
}

// feed hands a watcher its changes.
func feed[E any](c context.Context, ms *Members, x *watcher, out chan<- E, as func(Change) E) {
	defer close(out)
	defer func() {
		ms.mu.Lock()
		defer ms.mu.Unlock()
		delete(ms.watchers, x)
	}()
	for {
		ms.mu.Lock()
		var send chan<- E
		var next E
		if len(x.queue) > 0 {
			first := x.queue[0]
			first.Missed, x.missed, x.queue = x.missed, 0, x.queue[1:]
			next, send = as(first), out
		}
		ms.mu.Unlock()
		wake := x.wake
		if send != nil {
			wake = nil // it stays for the next round
		}
		select {
		case send <- next:
		case <-wake:
		case <-c.Done():
			return
		case <-ms.life.Done():
			return
		}
	}
}

// Notify tells all watchers.
func (ms *Members) Notify(p *Peer, s roster.State, cause error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.notifyLocked(p, s, cause)
}

// notifyLocked tells all watchers.
func (ms *Members) notifyLocked(p *Peer, s roster.State, cause error) {
	e := Change{Who: p, State: s, Cause: cmp.Or(p.gone, cause)}
	for x := range ms.watchers {
		x.enqueue(e)
	}
}

// sortedLocked lists the peers, this worker included, by rank.
func (ms *Members) sortedLocked() []*Peer {
	ps := make([]*Peer, 0, len(ms.peers))
	for _, p := range ms.peers {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *Peer) int { return cmp.Compare(a.Rank, b.Rank) })
	return ps
}
