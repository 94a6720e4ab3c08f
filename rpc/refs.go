package rpc

import (
	"context"
	"fmt"
	"time"
)

// share gives a reference its form on the wire. The owner counts the receiver's share at once; from anybody else the receiver
// asks the owner for a share, while the message that brings the reference keeps the sender's alive.
func (w *Worker) share(c context.Context, r *ref, to *peer) (refID, error) {
	if r.w != nil && r.w != w {
		return refID{}, fmt.Errorf("%w: %v belongs to another worker of this process", ErrArguments, r)
	}
	if err := r.settled(c); err != nil {
		return refID{}, err
	}
	id := refID{Owner: r.id.Owner, ID: r.id.ID}
	if id.Owner == w.rank && to.rank != w.rank {
		id.Fork = w.nextID()
		return id, w.owned.fork(id, to.rank)
	}
	return id, nil
}

// hold makes this worker's share of a reference that arrived.
func (w *Worker) hold(c context.Context, id refID) (*ref, error) {
	if id.Owner < 0 || id.Owner >= w.world {
		return nil, fmt.Errorf("%w: a reference to a value of worker %d", ErrProtocol, id.Owner)
	}
	if id.Fork != 0 && id.Owner != w.rank {
		return w.newRef(id, false), nil // the owner counted it when it sent it
	}
	id.Fork = w.nextID()
	if id.Owner == w.rank {
		if err := w.owned.fork(id, w.rank); err != nil {
			return nil, err
		}
		return w.newRef(id, false), nil
	}
	if _, err := w.ask(c, w.peers[id.Owner], kindFork, refHeader{id}); err != nil {
		return nil, fmt.Errorf("asking %s for a share: %w", w.nameOf(id.Owner), err)
	}
	return w.newRef(id, false), nil
}

// deleteTimeout bounds telling an owner that a share is given back. An owner that cannot be told is lost, and drops the shares of
// this worker when it notices.
const deleteTimeout = 10 * time.Second

// drop gives a share back, once: now, or when the last call that carries it ends.
func (w *Worker) drop(id refID, state *refState) {
	if state.release() {
		w.giveBack(id, state)
	}
}

// giveBack tells the owner; it does not wait for it.
func (w *Worker) giveBack(id refID, state *refState) {
	if state.err != nil {
		return // there never was a value
	}
	if id.Owner == w.rank {
		w.owned.drop(id, w.rank)
		return
	}
	if w.begin() != nil {
		return // this worker has left; the owner drops its shares
	}
	go func() {
		defer w.finish()
		c, cancel := context.WithTimeout(w.life, deleteTimeout)
		defer cancel()
		if _, err := w.ask(c, w.peers[id.Owner], kindDelete, refHeader{id}); err != nil {
			w.log.Debug("could not give a share back", "worker", w.name, "owner", w.nameOf(id.Owner), "err", err)
		}
	}()
}
