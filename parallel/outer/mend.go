package outer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/rpc"
)

// elsewhere is an error that may be gone in another place.
type elsewhere struct{ error }

func (e elsewhere) Unwrap() error { return e.error }

// others is an error for which this worker is not to blame, and some other is.
type others struct{ error }

func (e others) Unwrap() error { return e.error }

// fewError says that too few workers of an epoch are left to go on.
type fewError struct {
	left, world int
	lost        error
}

func (e *fewError) Error() string {
	return fmt.Sprintf("outer: %d of %d workers are left, and wait for the nodes: %v", e.left, e.world, e.lost)
}

func (e *fewError) Unwrap() error { return e.lost }

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

// rest waits a little before something is tried again.
func rest(c context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
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
				// Others may be at work in the next epoch, whatever this one's store has confirmed.
				return elsewhere{&fewError{next.Size(), l.world, lost}}
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
	if err := l.landAny(c); err != nil {
		return err
	}
	all, err := collective.Agree(collective.Scope(c, scope), l.g, head{Round: l.Rounds(), Done: true})
	for rank, h := range all {
		err = cmp.Or(err, wrong(rank, h, all[0], l.g, nil))
	}
	return err
}
