package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-project/weft/store"
)

// ErrOver is why the context of an epoch has ended: the place is over.
var ErrOver = errors.New("elastic: this worker's place is over")

// Epoch is the time for which a worker has one place, among the same others.
type Epoch struct {
	Place
	Store store.Store // of the workers of this epoch, for them alone; closed when the epoch has ended
}

// Context ends with c and, with ErrOver as its cause, as soon as the place is over. It is for what
// the workers of an epoch do together before they work: joining, and agreeing where to go on.
func (p Place) Context(c context.Context) (context.Context, context.CancelFunc) {
	return p.within(c, 0)
}

// within is a context that ends some time after the place is over.
func (p Place) within(c context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	c, cancel := context.WithCancelCause(c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.Over:
		case <-c.Done():
			return
		}
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-late.C:
			cancel(ErrOver)
		case <-c.Done():
		}
	}()
	return c, func() {
		cancel(context.Canceled)
		<-done
	}
}

// Final marks an error that no other place would mend, such as one of the program's own: Each
// returns it at once. nil stays nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return final{err}
}

type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Each calls work in every epoch of which this worker is a part, until it returns nil: then this
// worker has done its share of the job. Where another epoch has come by then, its other workers
// count on this one, so Each calls work once more. Of those that come later this worker does not
// hear, unless it calls Each again: should the agent have told it of one when it ends well, the
// agent starts it again, so that the others do not wait in vain. It then finds that nothing is left
// to do. A worker that has ended already starts again for a new round, but not where another worker
// is replaced within a round, which may then wait for it for ever: where workers end before others,
// the job needs --restart-policy group.
//
// work is to return when Epoch.Over is closed, leaving its world as it found it; its context ends
// JoinConfig.Grace later. It is also to return an error when something that it does with the others
// fails, and Each then waits for the place that follows from it: a worker mostly notices that
// another is lost before the nodes do. Where none follows within JoinConfig.Patience Each returns
// the error, as it does with one that is [Final].
func (m *Membership) Each(c context.Context, work func(c context.Context, e *Epoch) error) error {
	m.hear()
	var failed error // of the last epoch
	for {
		place := m.Place()
		if err := m.Err(); err != nil {
			return errors.Join(failed, err)
		}
		failed = m.epoch(c, &Epoch{Place: place}, work)
		var f final
		switch {
		case errors.As(failed, &f):
			return f.error
		case failed == nil && !m.ignore(place) && m.Err() == nil && c.Err() == nil:
			continue
		case failed == nil || m.fixed:
			return failed
		case c.Err() != nil:
			return context.Cause(c)
		}
		if err := m.another(c, place, failed); err != nil {
			return err
		}
	}
}

// epoch is work in one epoch.
func (m *Membership) epoch(c context.Context, e *Epoch, work func(context.Context, *Epoch) error) (err error) {
	joining, stop := e.Context(c)
	e.Store, err = m.Store(joining, e.Place)
	stop()
	if err != nil {
		return err
	}
	defer e.Store.Close() //nolint:errcheck // nothing is written to it any more
	c, stop = e.within(c, m.cfg.Grace)
	defer stop()
	return work(c, e)
}

// over says whether another place has been told.
func (p Place) over() bool {
	select {
	case <-p.Over:
		return true
	default:
		return false
	}
}

// another waits for a place after one in which something failed.
func (m *Membership) another(c context.Context, place Place, failed error) error {
	late := time.NewTimer(m.cfg.Patience)
	defer late.Stop()
	select {
	case <-place.Over:
		return nil
	case <-c.Done():
		return context.Cause(c)
	case <-late.C:
		return fmt.Errorf("%w; no other place has followed for %v, in which to begin anew", failed, m.cfg.Patience)
	}
}

// Change says for people what is new in a place to a worker that last worked in another; with none,
// which is the zero Place, why it begins.
func (p Place) Change(last Place) string {
	switch {
	case last.World == 0 && (p.Round > 0 || p.Restarts > 0):
		return "this worker is new"
	case last.World == 0:
		return "the job begins"
	case p.Round == last.Round:
		return "a worker was replaced"
	}
	var parts []string
	for _, x := range []struct {
		what          string
		before, after int
	}{{"node", last.Nodes, p.Nodes}, {"worker", last.World, p.World}} {
		if x.before != x.after {
			parts = append(parts, fmt.Sprintf("%s became %d", many(x.before, x.what), x.after))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "other nodes")
}

func many(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
