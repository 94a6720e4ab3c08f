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
	g     *collective.Group
	model nn.Layer
	opt   *optim.Local
	told  func(step int, loss float64, l *outer.Loop) // of every step; nil: nobody
}

func newTrainer(s settings, t *task, g *collective.Group) (*trainer, error) {
	w := &trainer{settings: s, task: t, g: g, model: t.model(rand.New(rand.NewPCG(s.seed, uint64(g.Rank()))))}
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

// train makes the inner steps, and tells the loop of each.
func (w *trainer) train(c context.Context) (r result, err error) {
	cfg := w.outer
	for name := range nn.Parameters(w.model) {
		cfg.Names = append(cfg.Names, name)
	}
	loop, err := outer.New(c, w.g, w.model.Params(), cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, loop.Close()) }()
	rows := parallel.Rows{Seed: w.seed, N: w.rows, Batch: w.batch}
	began := time.Now()
	for step := 0; !w.over(step, loop); step++ {
		if c.Err() != nil { // an inner step does not ask for it
			return r, context.Cause(c)
		}
		mine, at := rows.Of(uint64(step), w.g.Rank(), w.g.Size()), time.Now()
		loss, err := w.alone(mine)
		if err != nil {
			return r, fmt.Errorf("step %d: %w", step+1, err)
		}
		r.Losses = append(r.Losses, loss)
		time.Sleep(time.Until(at.Add(w.pace)))
		if err := loop.StepRows(c, len(mine)); err != nil {
			return r, fmt.Errorf("step %d: %w", step+1, err)
		}
		if w.told != nil {
			w.told(step+1, loss, loop)
		}
	}
	if err := loop.Finish(c); err != nil {
		return r, err
	}
	r.Took, r.Totals = time.Since(began), loop.Total()
	r.Loss, r.Right, err = w.tested(w.model)
	return r, err
}

// over says that training is: the same on all workers, also where each makes another number of
// steps.
func (w *trainer) over(step int, loop *outer.Loop) bool {
	if w.outer.FirstCalls {
		return loop.Rounds() >= uint64(w.steps/w.outer.Every*max(w.outer.Fragments, 1))
	}
	return step >= w.steps
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
