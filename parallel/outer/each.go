package outer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
)

// Each calls work with a loop of all workers of each epoch of which this worker is a part, until it
// has returned nil on all of them: it is [elastic.Membership.Each] with a loop that keeps parameters,
// momentum and position from one epoch to the next. Newcomers get them when an epoch begins, while
// the others wait. Where a worker is lost the others go on within the epoch, at their next call of
// the loop, as long as they are more than half of its workers: fewer wait for the nodes to agree.
//
// When the epoch is over the context of work ends, and what is called with it, with
// [elastic.ErrOver]. work is to return errors of the loop, and when it is called once more to go on
// from there: when to end follows from the loop's Rounds, or without FirstCalls from its Steps. After
// an error of its own, or for which this
// worker is to blame, Each ends at once: its agent starts another one, or ends the job. What another
// one is to blame for (a number that is not finite, other parameters) the loop tries again, until
// that has mended it or is gone.
func Each(
	c context.Context, m *elastic.Membership, params []*autodiff.Tensor, cfg Config,
	work func(c context.Context, e *elastic.Epoch, l *Loop) error,
) error {
	l, err := newLoop(params, cfg)
	if err != nil {
		return fmt.Errorf("outer: Each: %w", err)
	}
	defer l.Close() //nolint:errcheck // it does not fail
	return m.Each(c, func(c context.Context, e *elastic.Epoch) error {
		final, err := l.attend(c, e, join, work)
		if final {
			return elastic.Final(err)
		}
		return err
	})
}

type (
	joining = func(c context.Context, e *elastic.Epoch, cfg Config) (*rpc.Worker, error)
	working = func(c context.Context, e *elastic.Epoch, l *Loop) error
)

func join(c context.Context, e *elastic.Epoch, cfg Config) (*rpc.Worker, error) {
	listen := cmp.Or(cfg.Listen, net.JoinHostPort(e.Addr, "0"))
	return rpc.Join(c, rpc.Config{Store: e.Store, Rank: e.Rank, WorldSize: e.World, Listen: listen, Logger: cfg.Logger})
}

// attend takes part in an epoch; final says that no other one would mend the error.
func (l *Loop) attend(c context.Context, e *elastic.Epoch, join joining, work working) (final bool, err error) {
	c, stop := e.Context(c)
	defer stop()
	err = l.epoch(c, e, join, work)
	return err != nil && c.Err() == nil && !errors.As(err, new(elsewhere)), err
}

// epoch is work among the workers of one epoch.
func (l *Loop) epoch(c context.Context, e *elastic.Epoch, join joining, work working) error {
	w, err := join(c, e, l.cfg)
	if err != nil {
		if errors.Is(err, rpc.ErrConfig) {
			return err
		}
		return elsewhere{err}
	}
	defer l.posts.close() // what is under way has ended with w
	defer w.Close()       //nolint:errcheck // the others are told, or gone
	c = w.Context(c)
	g, err := collective.Open(c, w, "outer")
	if err != nil {
		return elsewhere{err}
	}
	l.g, l.world = g, e.World
	if err = l.gather(c); err == nil {
		err = work(c, e, l)
	}
	if err == nil {
		err = l.insist(c, func() error { return l.part(c) })
	}
	switch {
	case err == nil: // who is lost by now has a worker in its place soon, which needs this one
		if err = errors.Join(l.g.Close(), w.Leave(c)); err != nil {
			err = elsewhere{err}
		}
		return err
	case errors.Is(context.Cause(c), elastic.ErrOver):
		l.g.Abort(elastic.ErrOver) // the others will hear of it
	default:
		_ = w.Close() // so that this worker is lost for the others, also where the group is closed
	}
	return errors.Join(err, l.g.Close())
}

// elsewhere is an error that may be gone in another place.
type elsewhere struct{ error }

func (e elsewhere) Unwrap() error { return e.error }

// others is an error for which this worker is not to blame, and some other is.
type others struct{ error }

func (e others) Unwrap() error { return e.error }

func blamed(other bool, err error) error {
	if other {
		return others{err}
	}
	return err
}

// passes says that what has failed may be tried again, when others have done something about it.
func passes(err error) bool {
	for _, of := range []error{collective.ErrLost, collective.ErrAborted, collective.ErrMismatch, collective.ErrUnconfirmed, rpc.ErrTimeout} {
		if errors.Is(err, of) {
			return true
		}
	}
	return errors.As(err, new(others))
}

// pause is how long is waited before something is tried again.
const pause = 20 * time.Millisecond

// rest waits a little.
func rest(c context.Context) {
	select {
	case <-time.After(pause):
	case <-c.Done():
	}
}

// gather has all members of the group come together, without those that are lost meanwhile.
func (l *Loop) gather(c context.Context) error {
	for {
		err := l.g.Err()
		switch {
		case err == nil:
			if err = l.Regroup(c, l.g); err == nil {
				return nil
			}
		case errors.Is(err, collective.ErrLost):
			lost := err
			var next *collective.Group
			if next, err = l.g.Without(c); err != nil {
				break
			}
			if l.g = next; 2*next.Size() <= l.world {
				// The others may be at work in the next epoch, whatever this one's store has confirmed.
				return elsewhere{fmt.Errorf("outer: %d of %d workers are left, and wait for the nodes: %w", next.Size(), l.world, lost)}
			}
		default: // another member is in the next epoch
			return elsewhere{err}
		}
		switch {
		case c.Err() != nil:
			return context.Cause(c)
		case err != nil && !passes(err):
			return err
		case err != nil && (l.g.Err() == nil || errors.Is(err, collective.ErrUnconfirmed)):
			rest(c)
		}
	}
}

// mend goes on after something that has failed or not, in a loop of Each; again says that it is to
// be done again.
func (l *Loop) mend(c context.Context, err error) (again bool, _ error) {
	again = err != nil
	switch {
	case l.world == 0:
		return false, err
	case c.Err() != nil:
		return false, cmp.Or(err, context.Cause(c))
	case l.g.Err() != nil:
		return again, l.gather(c)
	case errors.Is(err, ErrApart) && l.apart != l.Rounds()+1:
		l.apart = l.Rounds() + 1 // if that does not help, nothing will
		return again, l.gather(c)
	case err != nil && passes(err):
		return again, nil
	}
	return false, err
}

// insist does something until it is done.
func (l *Loop) insist(c context.Context, do func() error) error {
	for {
		again, err := l.mend(c, do())
		if !again || err != nil {
			return err
		}
		rest(c)
	}
}

// part waits until all make no more exchanges: each has all results then.
func (l *Loop) part(c context.Context) error {
	all, err := collective.Agree(collective.Scope(c, scope), l.g, head{Round: l.Rounds(), Done: true})
	for rank, h := range all {
		err = cmp.Or(err, wrong(rank, h, all[0], l.g, nil))
	}
	return err
}
