package outer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/peers"
	"github.com/weft-project/weft/parallel/outer/internal/schedule"
)

// scope keeps a loop's operations apart from others of the group.
const scope = "outer"

// Exchange is one that was applied.
type Exchange struct {
	Round    uint64    // from 0
	Fragment int       // which part of the parameters
	Weights  []float64 // by rank: steps, or rows, since the exchange of that fragment before
	Bytes    int       // of outer gradients that this worker has sent, as large ones travel; it gets as many
	Took     time.Duration
	Waited   time.Duration // of that, with nothing else to do
}

// Totals are of all exchanges that were applied.
type Totals struct {
	Exchanges int // but for those to which no worker had anything to give
	Bytes     int // of outer gradients that this worker has sent
	Waited    time.Duration
}

// ExchangeError says which exchange was not applied, and why. Its text counts from 1.
type ExchangeError struct {
	Round    uint64 // from 0
	Fragment int
	Err      error
}

func (e *ExchangeError) Error() string {
	return fmt.Sprintf("outer: exchange %d, of fragment %d, was not applied: %v", e.Round+1, e.Fragment, e.Err)
}

// Unwrap gives the cause.
func (e *ExchangeError) Unwrap() error { return e.Err }

// DivergedError says whose training has gone wrong: the first member that had a parameter which is
// NaN or infinite when an exchange began. It is the same on all members, and wraps a
// [parallel.NotFiniteError].
type DivergedError struct {
	Rank      int
	Worker    string
	Step      uint64 // inner steps that it had made in this loop when the exchange began
	Parameter string
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("parameter %s of rank %d, %s, is not finite after its inner step %d, at the exchange that followed: "+
		"look at its rows, or lower the learning rate", e.Parameter, e.Rank, e.Worker, e.Step)
}

// Unwrap gives what others of package parallel call it.
func (e *DivergedError) Unwrap() error {
	return &parallel.NotFiniteError{Rank: e.Rank, Worker: e.Worker, Parameter: e.Parameter}
}

// flight is an exchange that is under way. Its goroutine has it until done is closed.
type flight struct {
	part   *fragment
	delta  []float32 // this worker's outer gradient, and then the mean
	head   head
	failed error // why this worker has none
	cancel context.CancelCauseFunc
	done   chan struct{}
	made   Exchange
	idle   bool // no worker has made anything
	err    error
}

// head is what a member says of its part in an exchange.
type head struct {
	Round  uint64
	Last   bool // of Finish
	Done   bool // it makes no more exchanges
	Sum    uint32
	Weight float64
	Step   uint64 // inner steps that it has made
	Bad    string // the first parameter that has an element which is not finite
	Failed string
}

// launch starts the next exchange. What c is cancelled by, or its deadline, is for the waiting
// alone: the exchange may outlive the step.
func (l *Loop) launch(c context.Context, last bool) {
	f := &flight{done: make(chan struct{}), head: head{Last: last, Step: l.steps}}
	l.with(func(m *schedule.Machine) { f.head.Round, f.made.Fragment, f.head.Weight = m.Began() })
	f.part = l.parts[f.made.Fragment]
	f.made.Round, f.head.Sum = f.head.Round, sum(f.part.anchor)
	own, err := l.values(f.part)
	if err != nil {
		f.failed, f.head.Failed, f.head.Weight = err, err.Error(), 0
	} else {
		f.delta = less(f.part.anchor, own)
		if at := notFinite(f.delta); at >= 0 {
			f.head.Bad = l.names[f.part.param(at)]
		}
	}
	c, f.cancel = context.WithCancelCause(collective.Scope(context.WithoutCancel(c), scope))
	g, began := l.g, time.Now()
	l.flight = f
	go func() {
		defer close(f.done)
		defer f.cancel(nil)
		f.err = f.exchange(c, g)
		f.made.Took = time.Since(began)
	}()
}

// exchange makes the mean of all members' outer gradients. First each says where it stands and what
// it brings: small, and what is wrong is known before anything large travels.
func (f *flight) exchange(c context.Context, g *collective.Group) error {
	all, err := collective.Agree(c, g, f.head)
	if err != nil {
		return errors.Join(f.failed, err)
	}
	total := 0.0
	for rank, h := range all {
		if err := wrong(rank, h, all[0], g, f.failed); err != nil {
			return err
		}
		total += h.Weight
		f.made.Weights = append(f.made.Weights, h.Weight)
	}
	if f.idle = !(total > 0); f.idle || g.Size() == 1 {
		return nil
	}
	share := float32(f.head.Weight / total)
	for i := range f.delta {
		f.delta[i] *= share
	}
	bytes := 4 * len(f.delta)
	if w := f.part.wire; w != nil {
		bytes = w.Bytes(len(f.delta))
		err = w.AllReduce(c, g, f.delta, collective.Sum)
	} else {
		err = collective.AllReduce(c, g, f.delta, collective.Sum)
	}
	f.made.Bytes = 2 * bytes * (g.Size() - 1) / g.Size()
	if err == nil && notFinite(f.delta) >= 0 { // the same on all
		err = fmt.Errorf("%w: the mean of all workers' is too large: lower the learning rate", parallel.ErrNotFinite)
	}
	return err
}

// wrong is what keeps a member's part from being used; the same on all. own is why this one has
// none.
func wrong(rank int, h, first head, g *collective.Group, own error) error {
	name := g.Members()[rank].Worker
	switch {
	case h.Failed != "":
		return blamed(rank != g.Rank(), peers.Failure(g, rank, h.Failed, own))
	case h.Bad != "":
		return blamed(rank != g.Rank(), &DivergedError{Rank: rank, Worker: name, Step: h.Step, Parameter: h.Bad})
	case h.Done != first.Done:
		return fmt.Errorf("%w: rank %d, %s, has ended its work (%t) where rank 0 has (%t)", ErrApart, rank, name, h.Done, first.Done)
	case h.Round != first.Round || h.Last != first.Last:
		return fmt.Errorf("%w: rank %d, %s, is at exchange %d (last: %t) where rank 0 is at %d (last: %t)",
			ErrApart, rank, name, h.Round+1, h.Last, first.Round+1, first.Last)
	case h.Sum != first.Sum:
		return fmt.Errorf("%w: rank %d, %s, has other synchronised values than rank 0", ErrApart, rank, name)
	}
	return nil
}

// land waits for the exchange that is under way, and applies it.
func (l *Loop) land(c context.Context) error {
	f, waits := l.flight, time.Now()
	select {
	case <-f.done:
	case <-c.Done():
		f.cancel(context.Cause(c)) // it fails on all members, or is there already
		<-f.done
	}
	l.flight = nil
	f.made.Waited = min(time.Since(waits), f.made.Took)
	err := f.err
	if err == nil {
		err = l.apply(f)
	}
	l.with(func(m *schedule.Machine) { m.Ended(err == nil) })
	if err != nil {
		return &ExchangeError{f.made.Round, f.made.Fragment, err}
	}
	l.last = f.made
	if !f.idle {
		l.total.Exchanges++
	}
	l.total.Bytes += f.made.Bytes
	l.total.Waited += f.made.Waited
	return nil
}

// apply makes the outer step, and mixes its result into this worker's parameters.
func (l *Loop) apply(f *flight) error {
	p, share := f.part, float32(l.cfg.Mix)
	anchor, momentum := p.anchor, p.momentum
	if !f.idle {
		anchor, momentum = p.descend(f.delta, float32(l.cfg.LR), float32(l.cfg.Momentum))
	}
	if f.head.Last {
		share = 0
	}
	own, err := l.values(p)
	if err != nil {
		return err
	}
	if err := l.assign([]*fragment{p}, [][]float32{mixed(own, anchor, share)}); err != nil {
		return err
	}
	p.anchor, p.momentum = anchor, momentum
	return nil
}
