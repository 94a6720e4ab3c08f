package rpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weft-project/weft/rpc/roster"
)

// PeerChange is what has become of a worker, as another sees it.
type PeerChange uint8

// The changes. A worker that comes back after PeerWasLost or PeerHasLeft joins anew.
const (
	PeerJoined  PeerChange = iota + 1
	PeerLinked             // there is a link with it; most links are made when they are first needed
	PeerLeaving            // it has announced that it leaves, and still serves
	PeerHasLeft
	PeerWasLost
)

// String is a word for logs.
func (p PeerChange) String() string {
	if p < PeerJoined || p > PeerWasLost {
		return fmt.Sprintf("PeerChange(%d)", uint8(p))
	}
	return [...]string{"joined", "linked", "leaving", "left", "lost"}[p-PeerJoined]
}

// PeerEvent tells a watcher of a change.
type PeerEvent struct {
	WorkerInfo
	Change PeerChange
	Cause  error // matches ErrPeerLost or ErrPeerLeft where the worker is gone
	// Missed is how many events before this one were dropped because the watcher was too slow.
	// Worker.Workers says who is there.
	Missed int
}

// maxWatched is how many events wait for a slow watcher.
const maxWatched = 1024

// watcher is a queue of events; it is guarded by Worker.mu.
type watcher struct {
	queue  []PeerEvent
	missed int
	wake   chan struct{} // holds one
}

// Peers tells who comes and goes, until c or this worker ends; then the channel is closed. First
// come the workers that are there, by rank, as joined. The queue of a watcher that does not keep up
// is bounded: the oldest events are dropped, and the next says how many.
func (w *Worker) Peers(c context.Context) <-chan PeerEvent {
	out := make(chan PeerEvent)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		close(out)
		return out
	}
	x := &watcher{wake: make(chan struct{}, 1)}
	for _, p := range w.sortedLocked() {
		if p.rank != w.rank && p.gone == nil {
			x.add(PeerEvent{WorkerInfo: p.info(), Change: PeerJoined})
		}
	}
	w.watchers[x] = struct{}{}
	w.work.Go(func() { w.feed(c, x, out) })
	return out
}

func (x *watcher) add(e PeerEvent) {
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

// feed hands a watcher its events.
func (w *Worker) feed(c context.Context, x *watcher, out chan<- PeerEvent) {
	defer close(out)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watchers, x)
	}()
	for {
		w.mu.Lock()
		var send chan<- PeerEvent
		var next PeerEvent
		if len(x.queue) > 0 {
			next, send = x.queue[0], out
			next.Missed, x.missed, x.queue = x.missed, 0, x.queue[1:]
		}
		w.mu.Unlock()
		wake := x.wake
		if send != nil {
			wake = nil // it stays for the next round
		}
		select {
		case send <- next:
		case <-wake:
		case <-c.Done():
			return
		case <-w.life.Done():
			return
		}
	}
}

// notifyLocked tells all watchers.
func (w *Worker) notifyLocked(p *peer, s roster.State, cause error) {
	e := PeerEvent{WorkerInfo: p.info(), Change: PeerChange(s), Cause: cmp.Or(p.gone, cause)}
	for x := range w.watchers {
		x.add(e)
	}
}

func (p *peer) info() WorkerInfo { return WorkerInfo{p.name, p.rank, p.node.Epoch} }

// sortedLocked lists the peers, this worker included, by rank.
func (w *Worker) sortedLocked() []*peer {
	ps := make([]*peer, 0, len(w.peers))
	for _, p := range w.peers {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *peer) int { return cmp.Compare(a.rank, b.rank) })
	return ps
}
