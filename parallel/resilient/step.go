package resilient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/peers"
)

// Loss is the mean loss over some rows of the data, a scalar. A team calls it with this member's
// rows, and again with rows of a member that is lost. Where it belongs to an arena, which is to be
// its own, the team frees that when it has the gradients.
type Loss func(c context.Context, rows []int) (*autodiff.Tensor, error)

// Step makes a step: the one to come (see [Team.Next]) on the rows that rows.Of gives for it. All
// members call it. It gives the mean loss over all rows, the same on all.
//
// Where members are lost meanwhile it goes on with the others. With fewer than Config.Min it waits
// for newcomers, as long as c lives. Where the loss function fails on one member it fails on all,
// with a [parallel.FailureError] that names it (with rank −1 where it is lost), and the step may be
// called again; so it may be where c has ended, and nothing is lost. It fails with a [StepError]
// where step is not the one to come, and with collective.ErrExcluded where the others go on without
// this member.
func (t *Team) Step(c context.Context, step uint64, rows parallel.Rows, loss Loss) (float64, error) {
	v, err := t.step(c, step, rows, loss)
	if err != nil {
		return 0, fmt.Errorf("resilient: step %d: %w", step, err)
	}
	return v, nil
}

func (t *Team) step(c context.Context, step uint64, rows parallel.Rows, loss Loss) (float64, error) {
	switch {
	case t.mail == nil:
		return 0, ErrClosed
	case t.broken != nil:
		return 0, t.broken
	case step != t.m.Step():
		return 0, &StepError{step, t.m.Step()}
	case loss == nil:
		return 0, fmt.Errorf("%w: there is no loss function", ErrConfig)
	case rows.Batch < 1 || rows.N < 1:
		return 0, fmt.Errorf("%w: a batch of %d rows of %d", parallel.ErrRows, rows.Batch, rows.N)
	}
	t.batch = rows.Batch
	defer func() { t.batch = 0 }()
	for t.m.Step() == step {
		if err := t.planned(c); err != nil {
			return 0, err
		}
		if t.m.Step() > step { // the others had its sums
			break
		}
		err := t.attempt(c, work{step, rows, loss})
		if err != nil {
			t.plan = nil
			if !t.mends(c, err) {
				return 0, err
			}
		}
	}
	t.changed()
	return t.loss, nil
}

// planned has a plan for the step.
func (t *Team) planned(c context.Context) error {
	switch {
	case t.plan != nil && t.plan.Batch == 0 && t.batch > 0: // made when nobody knew the rows
		whole := t.plan.Of(t.batch)
		t.plan = &whole
	case t.plan == nil && t.prev != nil:
		next := t.prev.Next(len(t.layout), t.batch)
		t.plan, t.prev = &next, nil
	case t.plan == nil:
		return t.sync(c)
	}
	if t.plan.Batch != t.batch {
		return fmt.Errorf("%w: %d rows here, and %d on another member", ErrDifferent, t.batch, t.plan.Batch)
	}
	return nil
}

// work is what a member does in a step; without a loss nothing.
type work struct {
	step uint64
	rows parallel.Rows
	loss Loss
}

// attempt carries out the plan: this member's rows, and all sums.
func (t *Team) attempt(c context.Context, w work) error {
	t.m.Rows(t.plan.Batch)
	x := t.newExchange()
	err, kept := x.carryOut(c, w), x.keepSums()
	if err = cmp.Or(err, kept); err != nil {
		return err
	}
	return t.conclude(c, w)
}

// conclude ends a step whose sums are all there.
func (t *Team) conclude(c context.Context, w work) error {
	head, err := heading(t.sums)
	if err != nil {
		return err
	}
	if head[headFailed] > 0 {
		return t.abandon(c)
	}
	if !t.m.Whole() {
		return fmt.Errorf("%w: a sum is missing that the plan had", ErrDifferent)
	}
	if w.loss != nil {
		all := w.rows.Of(w.step, 0, 1)
		if head[headRows] != float64(len(all)) || head[headDigest] != rowsDigest(all) {
			return fmt.Errorf("%w: in step %d %s takes a batch of %d rows, and the sums of all members cover %v, which are not those: each is to have the same parallel.Rows",
				ErrDifferent, w.step, t.g.Worker().Name(), len(all), head[headRows])
		}
	}
	p := t.plan
	news, claims := head[headNews] > 0, head[headClaims] > 0
	if err := t.apply(); err != nil {
		return err
	}
	t.plan, t.tell = nil, claims
	if t.prev = p; news || claims {
		t.prev = nil
	}
	return nil
}

// abandon gives a step up, as all members do, and says who has failed.
func (t *Team) abandon(c context.Context) error {
	own := t.failed
	t.m.Abandoned()
	t.dropStep()
	t.plan, t.prev = nil, nil
	err := peers.Outcome(c, t.g, own)
	switch {
	case err == nil:
		return &parallel.FailureError{Rank: -1, Worker: strings.Join(t.change.Lost, " or "), Text: "it is lost, and with it why it failed"}
	case own != nil && c.Err() == nil && !errors.Is(err, parallel.ErrFailed):
		return fmt.Errorf("%w: the others have not heard of a failure: %w", collective.ErrAborted, err) // they try again
	}
	return err
}

// apply makes the step of its sums, or keeps them until the state is here.
func (t *Team) apply() error {
	head, err := heading(t.sums)
	if err != nil {
		return err
	}
	t.loss = head[headLoss]
	t.keeps.makesStep()
	if t.catching != nil && !t.caughtUp() {
		t.catching.push(t.sums)
	} else if t.broken = t.make(t.m.Step(), t.sums); t.broken != nil {
		return t.broken
	}
	host.Forget(t.last)
	t.last, t.sums = t.sums, t.last
	t.dropStep()
	t.m.Applied()
	return nil
}

// make has the optimizer step.
func (t *Team) make(step uint64, sums []*device.Buffer) error {
	head, err := heading(sums)
	if err != nil {
		return err
	}
	owner := autodiff.NewArena("gradients")
	defer owner.Free()
	grads, err := t.gradients(sums, owner)
	if err == nil && len(grads) > 0 {
		err = t.cfg.Optimizer.Step(grads)
	}
	if err != nil {
		return err
	}
	t.cfg.Optimizer.Advance()
	if t.cfg.Made != nil {
		t.cfg.Made(Made{step, head[headLoss], int(head[headMembers])})
	}
	return nil
}

// dropStep forgets what was made of the step under way.
func (t *Team) dropStep() {
	host.Forget(t.mine)
	host.Forget(t.sums)
	clear(t.heads.used)
	t.heads.fixed, t.failed = [headFixed]float64{}, nil
}

func (t *Team) dropLast() { host.Forget(t.last) }

// dropAll forgets all that is kept for others.
func (t *Team) dropAll() {
	if t == nil {
		return // it was never made
	}
	t.dropStep()
	t.dropLast()
	host.Forget(t.blank)
	t.keeps.only(nil)
}
