package rpc

import (
	"cmp"
	"context"
	"slices"

	"github.com/weft-project/weft/rpc/roster"
)

// maxWatched is how many events wait for a slow watcher.
const maxWatched = 1024

// change is what has become of a peer.
type change struct {
	who    *peer
	state  roster.State
	cause  error // why the worker is gone
	missed int   // how many changes before this one were dropped
}

// watcher is a queue of changes; it is guarded by members.mu.
type watcher struct {
	queue  []change
	missed int
	wake   chan struct{} // holds one
}

func (x *watcher) add(e change) {
	if len(x.queue) == maxWatched {
		x.missed++
		x.queue = x.queue[1:]
	}
	x.queue = append(x.queue, e)
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// subscribe tells who comes and goes, until c or this worker ends; then the channel is closed. First
// come the workers that are there, by rank.
func subscribe[E any](ms *members, c context.Context, as func(change) E) <-chan E {
	out := make(chan E)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.closed {
		close(out)
		return out
	}
	x := &watcher{wake: make(chan struct{}, 1)}
	for _, p := range ms.sortedLocked() {
		if p.rank != ms.me.Rank && p.gone == nil {
			x.add(change{who: p, state: roster.Known})
		}
	}
	ms.watchers[x] = struct{}{}
	ms.work.Go(func() { feed(ms, c, x, out, as) })
	return out
}

// feed hands a watcher its changes.
func feed[E any](ms *members, c context.Context, x *watcher, out chan<- E, as func(change) E) {
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
			first.missed, x.missed, x.queue = x.missed, 0, x.queue[1:]
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

// notifyLocked tells all watchers.
func (ms *members) notifyLocked(p *peer, s roster.State, cause error) {
	e := change{who: p, state: s, cause: cmp.Or(p.gone, cause)}
	for x := range ms.watchers {
		x.add(e)
	}
}

// sortedLocked lists the peers, this worker included, by rank.
func (ms *members) sortedLocked() []*peer {
	ps := make([]*peer, 0, len(ms.peers))
	for _, p := range ms.peers {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *peer) int { return cmp.Compare(a.rank, b.rank) })
	return ps
}
