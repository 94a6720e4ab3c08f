package resilient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
	"github.com/weft-project/weft/rpc"
)

// Each calls work with a team of all workers of each epoch of which this worker is a part, until it
// returns nil: it is [elastic.Membership.Each] with a team that keeps its state from one epoch to
// the next. Where a worker is lost the others go on at once, within the epoch, as long as they are
// more than half of its workers: fewer wait for the nodes to agree. The epoch ends when
// the nodes have agreed on the next one, on all members after the same step; then links are made
// anew, and new workers get the state from the others, which train on meanwhile. Step fails with
// [elastic.ErrOver] there, and work is to return that.
//
// Workers bring the step and state of cfg, as from a checkpoint: those that have come furthest are
// right. Each worker that is started again does so, too.
//
// Where a loss function fails Each ends at once on that worker, with a [parallel.FailureError]: its
// agent starts it again, or ends the job. The others wait for the epoch that follows. Where Step
// refuses what it is called with, members differ, or nobody has the state, Each ends at once, too.
func Each(c context.Context, m *elastic.Membership, cfg Config, work func(c context.Context, e *elastic.Epoch, t *Team) error) error {
	t, err := newTeam(cfg)
	if err != nil {
		return fmt.Errorf("resilient: Each: %w", err)
	}
	t.m = ledger.New(len(t.layout), true, cfg.Step)
	defer t.dropAll()
	return m.Each(c, func(c context.Context, e *elastic.Epoch) error {
		worker, err := t.epoch(c, e, work)
		switch {
		case t.final(worker, err):
			return elastic.Final(err)
		case errors.Is(err, ErrEnded):
			return nil // there is nothing left to do
		case err != nil && c.Err() == nil && !errors.Is(err, elastic.ErrOver):
			t.cfg.Logger.Warn("this epoch has failed here; waiting for the next one", "epoch", e.Round, "error", err)
		}
		return err
	})
}

// final says whether no other place would mend an error.
func (t *Team) final(worker string, err error) bool {
	for _, wrong := range []error{ErrNoState, ErrDifferent, ErrConfig, ErrStep, parallel.ErrRows, rpc.ErrConfig} {
		if errors.Is(err, wrong) {
			return true
		}
	}
	return failedItself(worker, err) || t.broken != nil && errors.Is(err, t.broken)
}

// failedItself says whether an error is of this worker's loss: the others can only wait for it.
func failedItself(worker string, err error) bool {
	var f *parallel.FailureError
	return errors.As(err, &f) && f.Worker == worker
}

// epoch is work among the workers of one epoch, in which this worker has a name.
func (t *Team) epoch(c context.Context, e *elastic.Epoch, work func(c context.Context, e *elastic.Epoch, t *Team) error) (worker string, err error) {
	joining, joined := e.Context(c)
	defer joined()
	w, err := rpc.Join(joining, rpc.Config{
		Store: e.Store, Rank: e.Rank, WorldSize: e.World, Listen: cmp.Or(t.cfg.Listen, net.JoinHostPort(e.Addr, "0")), Logger: t.cfg.Logger,
	})
	if err != nil {
		return "", err
	}
	worker = w.Name()
	defer w.Close() //nolint:errcheck // the others are told, or gone
	g, err := collective.Open(joining, w, "resilient")
	if err != nil {
		return worker, err
	}
	t.over = e.Over
	if err = t.attach(w.Context(c), g); err == nil {
		joined()
		err = work(w.Context(c), e, t)
	}
	if err == nil {
		err = t.Close(w.Context(c))
	}
	if err == nil {
		return worker, w.Leave(c)
	}
	t.moves = errors.Is(err, elastic.ErrOver)
	return worker, errors.Join(err, t.detach())
}
