package outer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
)

// Each calls work with a loop of all workers of each epoch of which this worker is a part, until it
// has returned nil on all of them: it is [elastic.Membership.Each] with a loop that keeps
// parameters, momentum and position from one epoch to the next. Newcomers get them when an epoch
// begins, while the others wait. Where a worker is lost the others go on within the epoch, at their
// next call of the loop, as long as they are more than half of its workers: fewer wait for the
// nodes to agree.
//
// When the epoch is over the context of work ends, and what is called with it, with
// [elastic.ErrOver]. work is to return errors of the loop, and when it is called once more to go on
// from there: when to end follows from the loop's Rounds, or without FirstCalls from its Steps.
//
// Each ends at once after an error of work's own, or one for which this worker is to blame: it
// cannot listen at cfg.Listen, say. Its agent starts another one, or ends the job. What another
// worker is to blame for (a number that is not finite, other parameters) the loop tries again,
// until that worker has mended it or is gone.
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

// unheard says that this worker cannot listen where it is to.
func unheard(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "listen"
}

// attend takes part in an epoch; final says that no other one would mend the error.
func (l *Loop) attend(c context.Context, e *elastic.Epoch, join joining, work working) (final bool, err error) {
	c, stop := e.Context(c)
	defer stop()
	err = l.epoch(c, e, join, work)
	if errors.As(err, new(elsewhere)) {
		l.warn(c, e, err)
		return l.goes(c, e), err
	}
	return err != nil && c.Err() == nil, err
}

// warn says why this worker waits, before anybody could wonder.
func (l *Loop) warn(c context.Context, e *elastic.Epoch, err error) {
	if c.Err() != nil { // the next epoch is there
		return
	}
	says := "this epoch has failed here; waiting for the next one"
	if few := new(fewError); errors.As(err, &few) {
		says = fmt.Sprintf("%d of %d workers are left; waiting until the nodes have agreed", few.left, few.world)
	}
	cmp.Or(l.cfg.Logger, slog.Default()).Warn(says, "epoch", e.Epoch, "error", err)
}

// How long is waited for the next epoch.
const (
	moving    = 2 * time.Second  // when others train on, or are on their way to it
	unnoticed = 20 * time.Second // when nobody trains: longer than until a node's silence is a loss
)

// goes waits for the next epoch, and says whether this worker ends so that one comes. One that has
// not come together with others, which train on, does soon. Of several that wait in vain one does,
// and a first one, who has a state if any has, stays in any case.
func (l *Loop) goes(c context.Context, e *elastic.Epoch) bool {
	late := unnoticed
	if !l.has {
		late += unnoticed / 4
	}
	waits, stop := context.WithTimeout(c, late)
	defer stop()
	if !l.met && e.Store.Wait(waits, met) == nil {
		waits, stop = context.WithTimeout(c, moving)
		defer stop()
		<-waits.Done()
		return c.Err() == nil
	}
	<-waits.Done()
	for _, does := range []string{"stays", "goes"} {
		who, err := e.Store.CompareSet(c, scope+"/"+does, nil, []byte(l.id))
		if err != nil || string(who) == l.id {
			return err == nil && does == "goes"
		}
	}
	return false
}

// epoch is work among the workers of one epoch.
func (l *Loop) epoch(c context.Context, e *elastic.Epoch, join joining, work working) error {
	l.store, l.world, l.met, l.apart, l.end = e.Store, e.World, false, 0, 0
	var err error
	if l.has { // all know it that have joined
		err = e.Store.Set(c, stateful, nil)
	}
	var w *rpc.Worker
	if err == nil {
		w, err = join(c, e, l.cfg)
	}
	if errors.Is(err, rpc.ErrConfig) || unheard(err) {
		return err
	} else if err != nil {
		return elsewhere{err}
	}
	defer l.posts.close() // what is under way has ended with w
	defer w.Close()       //nolint:errcheck // the others are told, or gone
	c = w.Context(c)
	g, err := collective.Open(c, w, "outer")
	if err != nil {
		return elsewhere{err}
	}
	l.g = g
	if err = l.gather(c); err == nil {
		l.met = true
		err = e.Store.Set(c, met, nil)
	}
	if err != nil && (l.met || errors.Is(err, collective.ErrExcluded)) { // perhaps the others have no state
		err = elsewhere{err}
	}
	if err == nil {
		err = work(c, e, l)
	}
	if err == nil {
		err = l.insist(c, func() error { return l.part(c) })
	}
	return l.depart(c, e, w, err)
}

// depart ends this worker's part in an epoch, in which err has come of the work.
func (l *Loop) depart(c context.Context, e *elastic.Epoch, w *rpc.Worker, err error) error {
	switch {
	case err == nil && l.g.Size() == e.World:
		if err = errors.Join(l.g.Close(), w.Leave(c)); err != nil {
			err = elsewhere{err}
		}
		return err
	case err == nil: // in the place of who is lost another one comes, which needs the state
		err = elsewhere{fmt.Errorf("outer: %w: the work is done by %d of %d workers", collective.ErrLost, l.g.Size(), e.World)}
	case errors.Is(context.Cause(c), elastic.ErrOver):
		l.g.Abort(elastic.ErrOver) // the others will hear of it
	default:
		_ = w.Close() // so that this worker is lost for the others, also where the group is closed
	}
	return errors.Join(err, l.g.Close())
}

// What is there in the store of an epoch.
const (
	stateful = scope + "/state" // where one of its workers has come with a state
	met      = scope + "/met"   // where workers have come together, and train
)

// mayBegin says whether members may begin that all have no state: in this epoch nobody has had one.
func (l *Loop) mayBegin(c context.Context) error {
	if l.world == 0 {
		return nil
	}
	there, err := l.store.Check(c, stateful)
	if err == nil && there {
		err = ErrNoState
	}
	if err != nil {
		return elsewhere{err}
	}
	return nil
}
