package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/outer"
)

// trainer is one worker.
type trainer struct {
	settings
	*task
	g     *collective.Group // where it does not change
	model nn.Layer
	opt   *optim.Local
	told  func(loss float64, l *outer.Loop) // of every step; nil: nobody
	made  result
}

func newTrainer(s settings, t *task, rank int) (*trainer, error) {
	w := &trainer{settings: s, task: t, model: t.model(rand.New(rand.NewPCG(s.seed, uint64(rank))))}
	for name := range nn.Parameters(w.model) {
		w.outer.Names = append(w.outer.Names, name)
	}
	var err error
	w.opt, err = optim.New(optim.SGD{LR: s.lr, Momentum: 0.9}, w.model.Params()...)
	return w, err
}

// result is what a worker has at the end.
type result struct {
	Losses      []float64 // of this worker's rows, by step
	Loss, Right float64   // of the rows that nobody learnt from
	Took        time.Duration
	outer.Totals
}

// train learns in a group that does not change.
func (w *trainer) train(c context.Context) (r result, err error) {
	loop, err := outer.New(c, w.g, w.model.Params(), w.outer)
	if err != nil {
		return r, err
	}
	err = w.learn(c, loop)
	return w.made, errors.Join(err, loop.Close())
}

// learn makes the inner steps that are left, and tells the loop of each.
func (w *trainer) learn(c context.Context, loop *outer.Loop) (err error) {
	rows := parallel.Rows{Seed: w.seed, N: w.rows, Batch: w.batch}
	began := time.Now()
	defer func() { w.made.Took, w.made.Totals = w.made.Took+time.Since(began), loop.Total() }()
	for !w.over(loop) {
		if c.Err() != nil { // an inner step does not ask for it
			return context.Cause(c)
		}
		step, at := loop.Steps(), time.Now()
		mine := rows.Of(step, loop.Group().Rank(), loop.Group().Size())
		loss, err := w.alone(mine)
		if err != nil {
			return fmt.Errorf("step %d: %w", step+1, err)
		}
		w.made.Losses = append(w.made.Losses, loss)
		time.Sleep(time.Until(at.Add(w.pace)))
		if err := loop.StepRows(c, len(mine)); err != nil {
			return fmt.Errorf("step %d: %w", step+1, err)
		}
		if w.told != nil {
			w.told(loss, loop)
		}
	}
	if err := loop.Finish(c); err != nil {
		return err
	}
	w.made.Loss, w.made.Right, err = w.tested(w.model)
	return err
}

// over says that training is: the same on all workers, also where each makes another number of
// steps.
func (w *trainer) over(loop *outer.Loop) bool {
	if w.outer.FirstCalls {
		return loop.Rounds() >= uint64(w.steps/w.outer.Every*max(w.outer.Fragments, 1))
	}
	return loop.Steps() >= uint64(w.steps)
}

// alone is an inner step: nobody else takes part.
func (w *trainer) alone(rows []int) (float64, error) {
	owner := autodiff.NewArena("step")
	defer owner.Free()
	loss, err := w.loss(w.model, rows, owner)
	if err != nil {
		return 0, err
	}
	grads, err := autodiff.Backward(loss)
	if err != nil {
		return 0, err
	}
	if err := w.opt.Step(grads.All()); err != nil {
		return 0, err
	}
	return loss.Item()
}

// together makes steps in which all gradients are summed, for comparison.
func (w *trainer) together(c context.Context, steps int) (r result, err error) {
	replicas, err := parallel.Replicate(c, w.g, w.model.Params(), parallel.Config{})
	if err != nil {
		return r, err
	}
	rows := parallel.Rows{Seed: w.seed, N: w.rows, Batch: w.batch}
	began := time.Now()
	for step := range steps {
		loss, err := w.stepTogether(c, replicas, rows.Of(uint64(step), w.g.Rank(), w.g.Size()))
		if err != nil {
			return r, fmt.Errorf("step %d: %w", step+1, err)
		}
		r.Losses = append(r.Losses, loss)
	}
	r.Took = time.Since(began)
	r.Loss, r.Right, err = w.tested(w.model)
	return r, err
}

func (w *trainer) stepTogether(c context.Context, replicas *parallel.Replicas, rows []int) (float64, error) {
	owner := autodiff.NewArena("step")
	defer owner.Free()
	loss, err := w.loss(w.model, rows, owner)
	if err != nil {
		return 0, err
	}
	grads, err := replicas.Backward(c, loss, len(rows))
	if err != nil {
		return 0, err
	}
	if err := w.opt.Step(grads); err != nil {
		return 0, err
	}
	return loss.Item()
}
