package outer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/outer/internal/schedule"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// Loop keeps the parameters of a group's members together. Make it with New, and end it with Close.
type Loop struct {
	g      *collective.Group
	cfg    Config
	params []*autodiff.Tensor
	names  []string
	parts  []*fragment
	has    bool    // it stands where a group does
	flight *flight // the exchange that is under way; nil: none
	steps  uint64  // inner steps that were told
	last   Exchange
	total  Totals
	posts  posts
	id     string            // by which others know it again
	known  map[string]string // the members of the group before, by their ids
	world  int               // workers of the epoch; 0: this loop is not of Each
	store  store.Store       // of the epoch
	end    uint64            // of the exchanges of a Finish that has not ended; 0: there is none
	met    bool              // this loop has come together with others in the epoch
	apart  uint64            // the exchange before which members that had come apart were brought together, from 1

	mu sync.Mutex
	m  *schedule.Machine // calls of others come at any time
}

// New makes the loop of a worker whose training begins, or who joins a group that is at it: then
// the members that are there call [Loop.Regroup] meanwhile. All members call one or the other, and
// one loop at a time has a group. Parameters become those of rank 0 or of the group. They are the
// same on all, in name, shape and order, and so are settings: else all get a
// [parallel.DifferenceError], which names the first that differs. Settings that cannot be are
// an ErrConfig on who has them, and a [parallel.FailureError] on the others. Where it fails no
// parameter has changed.
func New(c context.Context, g *collective.Group, params []*autodiff.Tensor, cfg Config) (*Loop, error) {
	l, err := newLoop(params, cfg)
	if err := l.meet(c, g, err); err != nil {
		return nil, fmt.Errorf("outer: New: %w", errors.Join(err, l.Close()))
	}
	return l, nil
}

// newLoop is a loop without a group. Where it fails, too, it can tell others so.
func newLoop(params []*autodiff.Tensor, cfg Config) (*Loop, error) {
	l := &Loop{cfg: cfg.filled(), params: params, names: cfg.Names, id: rand.Text()}
	err := l.cfg.violations(len(params))
	if err == nil {
		err = l.inspect()
	}
	if err == nil {
		l.m = schedule.New(schedule.Config{Every: l.cfg.Every, Fragments: l.cfg.Fragments, Delay: l.cfg.Delay, FirstCalls: l.cfg.FirstCalls})
	}
	return l, err
}

// inspect checks the parameters, and takes their values.
func (l *Loop) inspect() error {
	if len(l.names) == 0 {
		for i := range l.params {
			l.names = append(l.names, strconv.Itoa(i))
		}
	}
	if len(l.names) != len(l.params) || len(l.params) == 0 {
		return fmt.Errorf("%w: %d names of %d parameters", parallel.ErrParameters, len(l.names), len(l.params))
	}
	seen, lens := map[*autodiff.Tensor]bool{}, make([]int, len(l.params))
	for i, p := range l.params {
		switch {
		case p.Err() != nil:
			return fmt.Errorf("%w: %s: %w", parallel.ErrParameters, l.names[i], p.Err())
		case seen[p] || !p.IsLeaf() || p.Dtype() != device.Float32:
			return fmt.Errorf("%w: %s (%v) must be a leaf of float32, given once", parallel.ErrParameters, l.names[i], p)
		}
		seen[p], lens[i] = true, p.Shape().Elems()
	}
	for _, which := range divide(lens, l.cfg.Fragments) {
		f := &fragment{params: which}
		for _, i := range which {
			f.lens = append(f.lens, lens[i])
		}
		var err error
		if f.anchor, err = l.values(f); err != nil {
			return err
		}
		f.momentum = make([]float32, len(f.anchor))
		if l.cfg.Wire != Float32 {
			f.wire = &collective.Narrow{Int8: l.cfg.Wire == Int8, Int4: l.cfg.Wire == Int4}
		}
		l.parts = append(l.parts, f)
	}
	return nil
}

// values are this worker's parameters of a fragment, as one array.
func (l *Loop) values(f *fragment) (all []float32, err error) {
	for _, i := range f.params {
		v, err := autodiff.Values[float32](l.params[i])
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", parallel.ErrParameters, l.names[i], err)
		}
		all = append(all, v...)
	}
	return all, nil
}

// assign gives the parameters of some fragments other values, all or none.
func (l *Loop) assign(fs []*fragment, values [][]float32) error {
	owner := autodiff.NewArena("outer")
	defer owner.Free()
	var to, from []*autodiff.Tensor
	for k, f := range fs {
		rest := values[k]
		for j, i := range f.params {
			v := autodiff.New(rest[:f.lens[j]], l.params[i].Shape()...)
			if err := owner.Adopt(v); err != nil {
				return err
			}
			to, from, rest = append(to, l.params[i]), append(from, v), rest[f.lens[j]:]
		}
	}
	return autodiff.Assign(to, from)
}

// Step is called after each inner step. It begins an exchange, or applies one, where that is due,
// and returns at once where it is not. Steps weigh the same; see StepRows.
func (l *Loop) Step(c context.Context) error { return l.StepRows(c, 1) }

// StepRows is Step after an inner step of so many rows, by which means are weighted. An exchange
// that fails is an [ExchangeError]; it is due again at the next step, or after Regroup.
func (l *Loop) StepRows(c context.Context, rows int) error {
	if rows < 0 {
		return fmt.Errorf("outer: Step: %w: %d", parallel.ErrRows, rows)
	}
	l.end = 0
	_, err := l.mend(c, l.innerStep(c, float64(rows)))
	l.with((*schedule.Machine).Resume)
	return err
}

// innerStep is an inner step, of some weight, that was made.
func (l *Loop) innerStep(c context.Context, weight float64) error {
	var do []schedule.Action
	l.steps++
	l.with(func(m *schedule.Machine) { do = m.Step(weight) })
	for _, a := range do {
		var err error
		switch a {
		case schedule.Apply:
			err = l.land(c)
		case schedule.Begin:
			l.launch(c, false)
		case schedule.Call:
			l.posts.call(l.g, l.flight.head.Round)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// with does something with the machine.
func (l *Loop) with(do func(m *schedule.Machine)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(l.m)
}

// Settle waits for the exchange that is under way, and applies it: before the group changes, or
// before parameters are saved. Without one it does nothing.
func (l *Loop) Settle(c context.Context) error {
	return l.insist(c, func() error { return l.landAny(c) })
}

// landAny waits for the exchange that is under way, if one is.
func (l *Loop) landAny(c context.Context) error {
	if l.flight == nil {
		return nil
	}
	return l.land(c)
}

// Finish exchanges all that is left, and gives the parameters the synchronised values: the same
// bits on all members, which call it at the end, or before an evaluation, after the same number of
// exchanges ([Loop.Rounds]). Where it has failed, and Regroup has followed, it goes on from where
// it was. Without a step since it does nothing. Where a member was lost meanwhile others may have
// made steps before it returns: before an evaluation in between, ask Steps and Rounds anew after
// it.
func (l *Loop) Finish(c context.Context) error {
	return l.insist(c, func() error {
		for ; ; l.launch(c, true) {
			if err := l.landAny(c); err != nil {
				return err
			}
			if !l.unfinished() {
				l.end = 0
				return l.Rewind() // also who was not there for the last ones
			}
		}
	})
}

// unfinished says whether Finish has an exchange to make. Others may have made all without this
// worker, and steps since.
func (l *Loop) unfinished() (more bool) {
	l.with(func(m *schedule.Machine) {
		if at := m.Position(); at.End > 0 || l.end == 0 || at.Round < l.end {
			more = m.Finish()
			l.end = m.Position().End
		}
	})
	return more
}

// Rewind gives the parameters the synchronised values, and gives up what this worker has made since
// the last exchanges: where its training has gone wrong. No exchange is under way.
func (l *Loop) Rewind() error {
	if l.flight != nil {
		return fmt.Errorf("outer: Rewind: %w: an exchange is under way; Settle first", rpc.ErrArguments)
	}
	values := make([][]float32, len(l.parts))
	for k, f := range l.parts {
		values[k] = f.anchor
	}
	if err := l.assign(l.parts, values); err != nil {
		return fmt.Errorf("outer: Rewind: %w", err)
	}
	l.with((*schedule.Machine).Forget)
	return nil
}

// Group is the group as it is now. Under Each it is the loop's.
func (l *Loop) Group() *collective.Group { return l.g }

// Rounds is how many exchanges the group has applied, since its training began.
func (l *Loop) Rounds() (n uint64) {
	l.with(func(m *schedule.Machine) { n = m.Round() })
	return n
}

// Steps is how many inner steps this worker has made since the training began. Regroup, and New for
// a newcomer, set it to that of the member that has made most: schedules of learning rates go by
// it.
func (l *Loop) Steps() (n uint64) {
	l.with(func(m *schedule.Machine) { n = m.Steps() })
	return n
}

// Last is the last exchange that was applied here; the zero value before any.
func (l *Loop) Last() Exchange { return l.last }

// Total is what this loop has done since New.
func (l *Loop) Total() Totals { return l.total }

// Close gives up the exchange that is under way, and waits for what the loop has started. The group
// lives on.
func (l *Loop) Close() error {
	if f := l.flight; f != nil {
		f.cancel(collective.ErrClosed)
		<-f.done
		l.flight = nil
	}
	l.posts.close()
	return nil
}
