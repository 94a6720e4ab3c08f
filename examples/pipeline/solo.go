package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/optim"
)

// replay is what a stage computes alone: the micro-batches of a step as they reach it.
type replay struct{ In, Labels []*autodiff.Tensor }

// solo is a copy of a stage, trained on worthless gradients.
type solo struct {
	mu  sync.Mutex
	of  *layers
	opt *optim.Local
}

// alone trains the copy for one step, with all that it needs at hand, and gives the seconds that
// this took. Where a stage computes one thing at a time, no pipeline with this stage can be faster.
// The first call also makes the copy and compiles its functions.
func alone(_ context.Context, s *stage, in replay) (seconds float64, err error) {
	s.solo.mu.Lock()
	defer s.solo.mu.Unlock()
	if s.solo.of == nil {
		if s.solo.of, err = newLayers(s.sizes, s.index, s.dev); err != nil {
			return 0, err
		}
		if s.solo.opt, err = optim.New(rule(1e-3), s.solo.of.params()...); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	err = accumulate(s.solo.opt, len(in.In), func(i int) *autodiff.Tensor {
		x := in.In[i]
		if x.Dtype().IsFloat() {
			x = x.RequireGrad() // the pipeline's stage computes the gradient of its input too
		}
		y := s.solo.of.forward(x, in.Labels[i])
		if s.next != nil {
			y = autodiff.Sum(y)
		}
		return y
	})
	err = errors.Join(err, place.Settle(s.dev))
	return time.Since(began).Seconds(), err
}

// accumulate adds up the gradients of n losses, each of which is computed after the backward of the
// one before, and steps.
func accumulate(opt *optim.Local, n int, loss func(i int) *autodiff.Tensor) error {
	var sum autodiff.Gradients
	defer sum.Free()
	for i := range n {
		grads, err := autodiff.Backward(loss(i))
		if err != nil {
			return err
		}
		if err := sum.Merge(grads); err != nil {
			return err
		}
	}
	_, err := opt.StepClipped(sum.All(), clip)
	opt.Advance()
	return err
}
