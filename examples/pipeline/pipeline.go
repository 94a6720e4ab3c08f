package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// language is the model with its optimizer, wherever its stages are.
type language interface {
	// step trains on micro-batches, whose mean loss it gives, before the step.
	step(c context.Context, ms []micro) (float64, error)
	// values are the loss, or without labels the logits, without training.
	values(c context.Context, ids, labels *autodiff.Tensor) ([]float32, error)
}

func rule(lr float64) optim.Rule { return optim.AdamW{LR: lr, Beta2: 0.98} }

// rates rise during the first tenth of the steps, and fall to a twentieth after.
func rates(steps int) optim.Schedule {
	rise := max(steps/10, 1)
	return optim.LinearWarmup(0.01, rise).Then(rise, optim.Cosine(steps-rise, 0.05))
}

// clip bounds the norm of a step's gradients.
const clip = 1

// whole is the model in one process.
type whole struct {
	stages []*layers
	opt    *optim.Local
}

func newWhole(s sizes, lr float64, schedule optim.Schedule, dev device.Device) (*whole, error) {
	m := &whole{}
	var params []*autodiff.Tensor
	for i := range s.Blocks {
		l, err := newLayers(s, i, dev)
		if err != nil {
			return nil, err
		}
		m.stages, params = append(m.stages, l), append(params, l.params()...)
	}
	var err error
	if m.opt, err = optim.New(rule(lr), params...); err == nil {
		m.opt.SetSchedule(schedule)
	}
	return m, err
}

func (m *whole) forward(x, labels *autodiff.Tensor) *autodiff.Tensor {
	for _, l := range m.stages {
		x = l.forward(x, labels)
	}
	return x
}

func (m *whole) step(_ context.Context, ms []micro) (mean float64, err error) {
	arena := autodiff.NewArena("step") // owns what the step makes
	defer arena.Free()
	err = accumulate(m.opt, len(ms), func(i int) *autodiff.Tensor {
		if err := errors.Join(arena.Adopt(ms[i].ids), arena.Adopt(ms[i].next)); err != nil {
			return autodiff.Failed(err)
		}
		loss := m.forward(ms[i].ids, ms[i].next)
		if v, err := loss.Item(); err == nil { // otherwise the backward fails with it
			mean += v / float64(len(ms))
		}
		return autodiff.Scale(loss, 1/float64(len(ms)))
	})
	return mean, err
}

func (m *whole) values(_ context.Context, ids, labels *autodiff.Tensor) ([]float32, error) {
	arena := autodiff.NewArena("values")
	defer arena.Free()
	if err := arena.Adopt(ids); err != nil {
		return nil, err
	}
	return autodiff.Values[float32](m.forward(ids, labels))
}

// pipeline is the model with stage i on worker i. Worker 0 has the first stage and drives. A second
// pipeline is on the workers after these, and so on.
type pipeline struct {
	w        *rpc.Worker
	first    *stage
	others   []rpc.RRef[*stage] // from the second on
	opt      *optim.Distributed // nil where stages have optimizers of their own: see team
	inFlight int                // micro-batches that have gone forward and not yet come back
}

// newPipeline makes the only pipeline.
func newPipeline(c context.Context, w *rpc.Worker, s sizes, lr float64, schedule optim.Schedule, inFlight int) (*pipeline, error) {
	c = w.Context(c)
	p, all, err := newStages(c, w, plan{Sizes: s}, inFlight)
	if err != nil {
		return nil, err
	}
	if p.opt, err = optim.NewDistributed(c, rule(lr), all...); err == nil {
		p.opt.SetSchedule(schedule)
	}
	for _, ref := range all {
		ref.Release()
	}
	return p, err
}

// newStages makes the stages on the workers, from the last to the first, as each knows the one that
// follows. This worker has the first one. It also gives all parameters.
func newStages(c context.Context, w *rpc.Worker, of plan, inFlight int) (p *pipeline, all []optim.Param, err error) {
	p = &pipeline{w: w, others: make([]rpc.RRef[*stage], len(of.Sizes.Blocks)-1), inFlight: inFlight}
	params := make([][]optim.Param, len(of.Sizes.Blocks))
	for i := len(p.others); i > 0; i-- {
		of.Index = i
		at := makeStage.Remote(c, w.Workers()[w.Rank()+i].Name, of)
		if params[i], err = stageParams.Call(c, at, struct{}{}); err != nil {
			return nil, nil, err
		}
		p.others[i-1], of.Next = at, at
	}
	of.Index = 0
	if p.first, err = build(c, of); err != nil {
		return nil, nil, err
	}
	if params[0], err = references(c, p.first, struct{}{}); err != nil {
		return nil, nil, err
	}
	return p, slices.Concat(params...), nil
}

// step is one pass. Every micro-batch goes forward through all stages and back again; the gradients
// of all add up in the pass, on the workers that have the parameters. A micro-batch begins when
// another has come back, so that no stage holds the activations of more than inFlight.
func (p *pipeline) step(c context.Context, ms []micro) (mean float64, err error) {
	var under sync.WaitGroup
	err = p.w.Pass(c, func(c context.Context) error {
		losses, ended := make([]float64, len(ms)), make(chan error, len(ms))
		for i := range len(ms) + p.inFlight {
			if i < len(ms) {
				under.Go(func() {
					var err error
					if losses[i], err = p.train(c, ms[i], 1/float64(len(ms))); err != nil {
						err = fmt.Errorf("micro-batch %d: %w", i+1, err)
					}
					ended <- err
				})
			}
			if from := p.inFlight - 1; i >= from && i < from+len(ms) {
				if err := <-ended; err != nil {
					return err // this ends the pass, and with it the others
				}
			}
		}
		for _, l := range losses {
			mean += l / float64(len(ms))
		}
		if p.opt == nil {
			mean, err = p.stepTogether(c, mean, len(ms))
			return err
		}
		_, err = p.opt.StepClipped(c, clip)
		return err
	})
	under.Wait()
	if p.opt != nil {
		p.opt.Advance()
	}
	return mean, err
}

// train takes one micro-batch there and back. Its loss counts as the given part of the step's.
func (p *pipeline) train(c context.Context, m micro, part float64) (float64, error) {
	loss, err := forward(c, p.first, hop{ctx.Own(c, m.ids), m.next, len(p.others), part})
	if err != nil {
		return 0, err
	}
	return loss.Item()
}

// forward goes as far as a stage.
func (p *pipeline) forward(c context.Context, ids, labels *autodiff.Tensor, until int) (*autodiff.Tensor, error) {
	return forward(c, p.first, hop{ctx.Own(c, ids), labels, until, 0})
}

func (p *pipeline) values(c context.Context, ids, labels *autodiff.Tensor) (v []float32, err error) {
	err = p.w.Pass(c, func(c context.Context) error {
		out, err := p.forward(ctx.NoGrad(c), ids, labels, len(p.others))
		if err != nil {
			return err
		}
		v, err = autodiff.Values[float32](out)
		return err
	})
	return v, err
}
