package parallel

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// mostRows is how many rows a step may have on all ranks together: float32 counts them exactly.
const mostRows = 1 << 24

// Backward gives the gradients of the mean over all rows of all ranks, and over those that were
// accumulated: the same on all ranks. loss is the mean over this rank's rows, a scalar. It may be
// nil where there are none, and is not looked at then. A parameter that no rank used has no
// gradient. All ranks call it.
//
// Gradients are dense and read-only. They belong to the arena of the loss, or to nobody. The
// backward is this worker's alone: it does not go back through calls.
//
// The group's operations are under way while the backward is, in the scope of the context
// ([collective.Scope]). No other backward may reach the parameters meanwhile. Where it fails it
// fails on all ranks, and what was accumulated is dropped. Another step may follow, but for the
// loss of a worker, which ends the group.
func (r *Replicas) Backward(c context.Context, loss *autodiff.Tensor, rows int) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.dropKept()
	s := newStep(r)
	defer s.letGo()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, l := range s.loads {
			<-l.ready
			l.exchange(c, r.g)
		}
	}()
	failed := r.backward(loss, rows, s.got)
	failed = s.sendRest(r.keptRows+rows, failed)
	<-done
	grads, err := s.collect(c, failed, loss.Owner())
	if err != nil {
		return nil, fmt.Errorf("parallel: Backward: %w", err)
	}
	return grads, nil
}

// Accumulate keeps the gradients of this rank's rows for the next Backward, and tells nobody. Where
// it fails nothing is kept of these rows.
func (r *Replicas) Accumulate(loss *autodiff.Tensor, rows int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := make([]*device.Buffer, len(r.params))
	err := r.backward(loss, rows, func(i int, grad *autodiff.Tensor) (err error) {
		sums[i], err = r.plusKept(i, grad)
		return err
	})
	if err != nil {
		dropAll(sums)
		return fmt.Errorf("parallel: Accumulate: %w", err)
	}
	for i, sum := range sums {
		if sum != nil {
			dropAll(r.kept[i : i+1])
			r.kept[i] = sum
		}
	}
	r.keptRows += rows
	return nil
}

// plusKept is a reference to a gradient, with what is kept of the parameter added.
func (r *Replicas) plusKept(i int, grad *autodiff.Tensor) (*device.Buffer, error) {
	if r.kept[i] != nil {
		before := autodiff.Transient(r.params[i].Type(), r.kept[i].Retain())
		defer autodiff.Release(before)
		grad = autodiff.AddGradients(before, grad)
	}
	return grad.Acquire()
}

func (r *Replicas) dropKept() {
	dropAll(r.kept)
	clear(r.kept)
	r.keptRows = 0
}

// backward runs this rank's backward, weighted, and gives each parameter's gradient to got.
func (r *Replicas) backward(loss *autodiff.Tensor, rows int, got func(i int, grad *autodiff.Tensor) error) error {
	if rows < 0 || r.keptRows+rows > mostRows/r.g.Size() {
		return fmt.Errorf("%w: %d", ErrRows, rows)
	}
	if rows == 0 {
		return nil
	}
	if loss.Type().Shape.Elems() != 1 {
		return fmt.Errorf("the loss %v %w", loss.Type(), autodiff.ErrNotScalar)
	}
	weight := autodiff.FullLike(loss, float64(rows)/r.total)
	if err := weight.Err(); err != nil {
		return err
	}
	var errs []error
	for i, p := range r.params {
		remove, err := p.OnAccumulated(func(_, grad *autodiff.Tensor) error { return got(i, grad) })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer remove()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	grads, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{weight}}, loss)
	if err == nil {
		grads.Free() // whoever wants one has a reference
	}
	return err
}
