package client

import (
	"bytes"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// listener is one Watch of a client.
type listener struct {
	send func(kv.Change)
	end  func(error)
}

// watched is a key that a client watches: what its listeners have been told, and what of the
// server's words is news to them. It does no I/O and locks nothing.
type watched struct {
	key       string // the user's
	listeners map[*listener]struct{}
	ready     chan struct{} // closed when changes are heard of, or the watch has failed
	err       error         // why it has

	known bool   // value is what the listeners know
	value []byte // nil: that there is none
	stale bool   // of an earlier connection: what became of it since is not known
}

func newWatched(key string) *watched {
	return &watched{key: key, listeners: map[*listener]struct{}{}, ready: make(chan struct{})}
}

func (w *watched) notify(ch kv.Change) {
	for l := range w.listeners {
		own := ch
		own.Old, own.New = bytes.Clone(ch.Old), bytes.Clone(ch.New)
		l.send(own)
	}
}

// found takes in which value there is: nil where none. What changed unseen is told as one change.
func (w *watched) found(value []byte) {
	if w.known && !same(w.value, value) {
		w.notify(kv.Change{Kind: kindOf(w.value, value), Key: w.key, Old: w.value, New: value, Dropped: -1})
	}
	w.known, w.stale, w.value = true, false, value
	w.markReady(nil)
}

// markReady lets those go on who wait for the watch.
func (w *watched) markReady(err error) {
	select {
	case <-w.ready:
	default:
		w.err = err
		close(w.ready)
	}
}

// heard takes in news.
func (w *watched) heard(r state.Reply) {
	before, after := r.Old, r.Value
	switch r.Event {
	case kv.Created:
		before = nil
	case kv.Deleted:
		after = nil
	}
	if w.known && w.stale && !same(w.value, before) {
		w.notify(kv.Change{Kind: kindOf(w.value, before), Key: w.key, Old: w.value, New: before, Dropped: -1})
	}
	if w.known { // else its value at the beginning is still to be found, and whoever listens is not told of changes before
		w.notify(kv.Change{Kind: kindOf(before, after), Key: w.key, Old: before, New: after})
		w.value, w.stale = after, false
	}
}

// same says whether two values are equal, of which nil is none.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func kindOf(before, after []byte) kv.ChangeKind {
	switch {
	case after == nil:
		return kv.Deleted
	case before == nil:
		return kv.Created
	}
	return kv.Updated
}
