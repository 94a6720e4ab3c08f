package resilient

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
)

// repair goes on with the members that are left, where some are not.
func (t *Team) repair(c context.Context) error {
	for {
		before := workers(t.g)
		left := t.gone(c)
		if t.g.Err() == nil && len(left) == 0 {
			return nil
		}
		if err := t.g.Err(); errors.Is(err, ErrClosed) || errors.Is(err, collective.ErrExcluded) {
			return err
		}
		if t.since.IsZero() {
			t.since = t.known.when()
		}
		next, err := t.without(c, left)
		switch {
		case t.unconfirmed(c, err):
			continue
		case err != nil:
			return err
		}
		t.adopt(next, before)
		if t.over != nil && !t.done && 2*next.Size() <= t.world { // who makes no more steps may end anywhere
			return t.awaitPlace(c)
		}
	}
}

// gone are the members that have said that they leave. Where a worker has left the job what it said
// may be lost with its links. In an epoch all may be about to leave, and the nodes say so.
func (t *Team) gone(c context.Context) []string {
	left := t.mail.gone(workers(t.g))
	for _, m := range t.g.Members() {
		if t.over != nil || slices.Contains(left, m.Worker) {
			continue
		}
		if now, err := t.g.Worker().Find(c, m.Worker); errors.Is(err, rpc.ErrPeerLeft) || err == nil && now.Incarnation != m.Incarnation {
			left = append(left, m.Worker)
		}
	}
	return left
}

// unconfirmed says whether the store has not said who goes on, and waits a little then: it is asked
// again.
func (t *Team) unconfirmed(c context.Context, err error) bool {
	if !errors.Is(err, collective.ErrUnconfirmed) || c.Err() != nil {
		return false
	}
	t.cfg.Logger.Warn("the job's store does not say who goes on; asking again", "error", err)
	t.mail.idle(c, 10*pause)
	return true
}

// awaitPlace waits for what the nodes agree on, where half of an epoch's workers or more are lost:
// the others may be at work in the next one, whatever this one's store has confirmed.
func (t *Team) awaitPlace(c context.Context) error {
	t.cfg.Logger.Warn("most workers are lost; waiting for the nodes to agree who goes on", "left", workers(t.g))
	select {
	case <-t.over:
		return elastic.ErrOver
	case <-c.Done():
		return context.Cause(c)
	}
}

// without is the next generation. It is of no use when the members are about to become others.
func (t *Team) without(c context.Context, left []string) (*collective.Group, error) {
	voting, cancel := context.WithCancel(c)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		select {
		case <-t.over: // nil where nobody says so
		case <-voting.Done():
		}
	}()
	next, err := t.g.Without(voting, left...)
	cancel()
	<-watched
	if err != nil && t.isOver() {
		return nil, elastic.ErrOver
	}
	return next, err
}

// adopt makes the next generation the team's.
func (t *Team) adopt(next *collective.Group, before []string) {
	now := workers(next)
	if t.met || t.lives == nil { // else meet compares with those of the epoch before
		t.change.Lost = append(t.change.Lost, without(before, now)...)
		t.change.Came = append(t.change.Came, without(now, before)...)
		maps.DeleteFunc(t.lives, func(_, worker string) bool { return !slices.Contains(now, worker) })
	}
	t.g, t.known, t.plan = next, know(next), nil
	t.mail.among(now)
}
