package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/refs"
)

// ErrLeaked is what a *LeakError matches: a worker has left while references were held that should
// have been given back.
var ErrLeaked = errors.New("references leaked")

// LeakError says which references were held when a worker left.
type LeakError struct {
	Worker string
	Theirs []Leak // values of this worker, held by others
	Mine   []Leak // values of others, held by this worker
}

// Leak is a reference that was not given back.
type Leak struct {
	Reference string // as RRef.String prints it
	Type      string // of the value; empty where it is another worker's
	Holder    string // name of the worker
}

func (e *LeakError) Error() string {
	var parts []string
	for _, l := range append(append([]Leak{}, e.Theirs...), e.Mine...) {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s", l.Reference, l.Type))+" held by "+l.Holder)
	}
	return fmt.Sprintf("%v: %s: %s", ErrLeaked, e.Worker, strings.Join(parts, "; "))
}

// Is matches ErrLeaked.
func (e *LeakError) Is(target error) bool { return target == ErrLeaked }

// References counts what a worker keeps for references.
type References struct {
	Owners          int // values kept here
	Forks           int // references to them, here and elsewhere
	PendingUsers    int // references of this worker that their owners have not confirmed
	PendingChildren int // references given to others that these have not settled
}

// References counts what this worker keeps for references now.
func (w *Worker) References() References {
	w.refs.mu.Lock()
	defer w.refs.mu.Unlock()
	s := w.refs.m.Stats()
	return References{Owners: s.Owned, Forks: s.Forks, PendingUsers: s.PendingUsers, PendingChildren: s.PendingChildren}
}

// Owned is the number of values that this worker keeps for references.
func (w *Worker) Owned() int { return w.References().Owners }

// drain gives back what this worker holds of others and waits until these hold nothing of it.
func (rs *references) drain(c context.Context) error {
	for {
		rs.do((*refs.Machine).ReleaseAll)
		rs.mu.Lock()
		theirs, mine := rs.m.Holdings()
		idle := len(theirs)+len(mine)+rs.m.Stats().Waiting == 0
		if rs.changed == nil {
			rs.changed = make(chan struct{})
		}
		changed := rs.changed
		rs.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-changed:
		case <-c.Done():
			return errors.Join(rs.leaks(), ctx.AsTimeout(context.Cause(c)))
		}
	}
}

// leaks reports what is held now, nil where that is nothing.
func (rs *references) leaks() error {
	rs.mu.Lock()
	theirs, mine := rs.m.Holdings()
	types := map[refs.ID]string{}
	for id, o := range rs.values {
		if o.value.IsValid() {
			types[id] = o.value.Type().String()
		}
	}
	rs.mu.Unlock()
	if len(theirs)+len(mine) == 0 {
		return nil
	}
	list := func(hs []refs.Holding) (ls []Leak) {
		for _, h := range hs {
			ls = append(ls, Leak{rs.refName(h.ID), types[h.ID], rs.w.members.NameOf(h.Holder.Rank)})
		}
		return ls
	}
	err := &LeakError{rs.w.name, list(theirs), list(mine)}
	rs.w.log.Warn("references were not given back", "worker", rs.w.name, "err", err)
	return err
}

// refName is how a reference reads.
func (rs *references) refName(id refs.ID) string {
	return fmt.Sprintf("RRef(%s, %d.%d)", rs.w.members.NameOf(id.Owner.Rank), id.By.Rank, id.N)
}
