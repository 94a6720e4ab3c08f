package parallel

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/parallel/internal/losses"
)

// BackwardPass is [Replicas.Backward] through operations of a group that the forward called in the
// pass of c (package collective/tensors), as batches that are normalised together
// (nn.BatchNorm.Total). Each rank has a pass of its own. A rank without rows calls it, too. What it
// gives is the pass's, and what the backward adds to the pass's gradients is this rank's part
// alone.
func (r *Replicas) BackwardPass(c context.Context, loss *autodiff.Tensor, rows int) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	var owner *autodiff.Arena
	if pass, ok := ctx.From(c); ok {
		owner = pass.Arena()
	}
	grads, err := r.step(sums(c), rows, owner, func(s *step) error { return r.through(c, loss, rows, s.got) })
	if err != nil {
		return nil, fmt.Errorf("parallel: BackwardPass: %w", err)
	}
	return grads, nil
}

// sums is where gradients are numbered that travel beside the operations of a backward.
func sums(c context.Context) context.Context { return collective.Subscope(c, "gradients") }

// through runs the backward of the pass, weighted, and gives each parameter's gradient to got.
func (r *Replicas) through(c context.Context, loss *autodiff.Tensor, rows int, got func(i int, grad *autodiff.Tensor) error) error {
	root, err := r.root(c, loss, rows)
	errs := []error{err}
	for i, p := range r.params {
		remove, err := p.OnAccumulated(func(_, grad *autodiff.Tensor) error {
			own, err := taken(p, grad)
			if err != nil {
				return fmt.Errorf("the gradient of %s: %w", r.names[i], err)
			}
			return got(i, own)
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer remove()
	}
	if err := errors.Join(errs...); err != nil {
		r.g.AbandonBackward(c, err) // the others go on in theirs, and need not wait
		return err
	}
	return ctx.Backward(c, root)
}

// root is where the backward begins: the loss, weighted, or, without rows, something that no
// parameter depends on.
func (r *Replicas) root(c context.Context, loss *autodiff.Tensor, rows int) (*autodiff.Tensor, error) {
	if err := r.counted(rows); err != nil {
		return nil, err
	}
	if _, ok := ctx.From(c); !ok {
		return nil, ctx.ErrNoPass
	}
	if rows == 0 {
		return autodiff.Sum(autodiff.New([]float32{0}).RequireGrad()), nil
	}
	if err := losses.Scalar(loss); err != nil {
		return nil, err
	}
	root := autodiff.Scale(loss, float64(rows)/r.total)
	return root, root.Err()
}
