package parallel

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/parallel/internal/losses"
)

// Backward gives the gradients of the mean over all rows of all ranks, and over those that were
// accumulated: the same on all ranks. loss is the mean over this rank's rows, a scalar. It may be
// nil where there are none, and is not looked at then. A parameter that no rank used has no
// gradient. All ranks call it.
//
// Gradients are read-only. They belong to the arena of the loss, or to nobody. One is sparse where
// it is on all ranks that have it. The backward is this worker's alone: it does not go back through
// calls; see [Replicas.Combine].
//
// The group's operations are under way while the backward is, in the scope of the context
// ([collective.Scope]). No other backward may reach the parameters meanwhile. Where it fails it
// fails on all ranks, and what was accumulated is dropped. Another step may follow, but for the
// loss of a worker, which ends the group.
func (r *Replicas) Backward(c context.Context, loss *autodiff.Tensor, rows int) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	grads, err := r.step(c, rows, loss.Owner(), func(s *step) error { return r.backward(loss, rows, s.got) })
	if err != nil {
		return nil, fmt.Errorf("parallel: Backward: %w", err)
	}
	return grads, nil
}

// Combine takes the place of [Replicas.Backward] where the gradients of this rank's rows are there
// already, as those that a pass has left on this worker (ctx.Gradients): grads are of the mean over
// them, and stay the caller's. What it gives belongs to their arena, or to nobody. Gradients of
// tensors that are no parameters are not looked at.
func (r *Replicas) Combine(c context.Context, grads map[*autodiff.Tensor]*autodiff.Tensor, rows int) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	var owner *autodiff.Arena
	for _, g := range grads {
		owner = cmp.Or(owner, g.Owner())
	}
	all, err := r.step(c, rows, owner, func(s *step) error { return r.weigh(grads, rows, s.got) })
	if err != nil {
		return nil, fmt.Errorf("parallel: Combine: %w", err)
	}
	return all, nil
}

// step has the gradients travel that bring gives to the step.
func (r *Replicas) step(c context.Context, rows int, owner *autodiff.Arena, bring func(s *step) error) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.dropKept()
	s := newStep(r)
	defer s.letGo()
	if r.g.Size() == 1 {
		return s.alone(c, rows, bring(s), owner)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.travel(c, s.loads)
	}()
	failed := s.sendRest(r.keptRows+rows, bring(s))
	<-done
	grads, err := s.collect(c, failed, owner)
	r.settle(s.whole)
	return grads, err
}

// Accumulate keeps the gradients of this rank's rows for the next Backward, and tells nobody. Where
// it fails nothing is kept of these rows.
func (r *Replicas) Accumulate(loss *autodiff.Tensor, rows int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := make([]*autodiff.Tensor, len(r.params))
	err := r.backward(loss, rows, func(i int, grad *autodiff.Tensor) (err error) {
		sums[i], err = r.plusKept(i, grad)
		return err
	})
	if err != nil {
		autodiff.Release(sums...)
		return fmt.Errorf("parallel: Accumulate: %w", err)
	}
	for i, sum := range sums {
		if sum != nil {
			autodiff.Release(r.kept[i])
			r.kept[i] = sum
		}
	}
	r.keptRows += rows
	return nil
}

// plusKept is a gradient, which it takes over, with what is kept of the parameter added. Rows are
// added up one gradient after the other, as whole arrays are.
func (r *Replicas) plusKept(i int, grad *autodiff.Tensor) (*autodiff.Tensor, error) {
	if r.kept[i] == nil {
		return grad, nil
	}
	defer autodiff.Release(grad)
	before, own := r.kept[i].Coalesce(), grad.Coalesce()
	sum := autodiff.AddGradients(before, own)
	if before != r.kept[i] {
		autodiff.Release(before)
	}
	if own != grad {
		autodiff.Release(own)
	}
	return sum, sum.Err()
}

func (r *Replicas) dropKept() {
	autodiff.Release(r.kept...)
	clear(r.kept)
	r.keptRows = 0
}

// counted says whether there can be so many rows.
func (r *Replicas) counted(rows int) error { return losses.Countable(r.keptRows, rows, r.g.Size()) }

// backward runs this rank's backward, weighted, and gives each parameter's gradient to got, which
// takes it over.
func (r *Replicas) backward(loss *autodiff.Tensor, rows int, got func(i int, grad *autodiff.Tensor) error) error {
	if err := r.counted(rows); err != nil || rows == 0 {
		return err
	}
	return losses.Backward(loss, float64(rows)/r.total, func(leaf, grad *autodiff.Tensor) error {
		if i, ours := r.of[leaf]; ours {
			return got(i, grad)
		}
		autodiff.Release(grad)
		return nil
	})
}

// weigh gives got each of the gradients of some rows, weighted, which takes it over.
func (r *Replicas) weigh(grads map[*autodiff.Tensor]*autodiff.Tensor, rows int, got func(i int, grad *autodiff.Tensor) error) error {
	if err := r.counted(rows); err != nil || rows == 0 {
		return err
	}
	for i, p := range slices.Backward(r.params) {
		g := grads[p]
		if g == nil {
			continue
		}
		own, err := taken(p, scaled(g, float64(rows)/r.total))
		if err == nil {
			err = got(i, own)
		} else {
			err = fmt.Errorf("the gradient of %s: %w", r.names[i], err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// taken is a gradient of p, with references of its own.
func taken(p, grad *autodiff.Tensor) (*autodiff.Tensor, error) {
	if err := grad.Err(); err != nil {
		return nil, err
	}
	if !grad.Type().Equal(p.Type()) {
		return nil, fmt.Errorf("%w: %v for a parameter %v", autodiff.ErrGradient, grad.Type(), p.Type())
	}
	ids, values, sparse := grad.Rows()
	if !sparse {
		b, err := grad.Acquire()
		if err != nil {
			return nil, err
		}
		return autodiff.Transient(grad.Type(), b), nil
	}
	at, err := ids.Acquire()
	if err != nil {
		return nil, err
	}
	v, err := values.Acquire()
	if err != nil {
		_ = at.Release() // ours
		return nil, err
	}
	return autodiff.TransientSparse(p.Type().Shape[0], ids.Type(), at, values.Type(), v)
}
