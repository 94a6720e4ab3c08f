package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
)

// team says of which pipelines a stage is. Stage i of each is a replica of stage i of the others.
type team struct {
	Pipelines int
	LR        float64
	Steps     int
}

// twin is what a stage shares with the same stage of the other pipelines.
type twin struct {
	g        *collective.Group
	replicas *parallel.Replicas
	opt      *optim.Local

	mu    sync.Mutex
	grads map[*autodiff.Tensor]*autodiff.Tensor // of the pass that is under way
}

// The functions of stages that have twins.
var (
	stageMean = rpc.DefineMethod("pipeline.mean", mean)
	stageStep = rpc.DefineMethod("pipeline.step", step)
)

// newTeam makes one of several pipelines: the one that begins at this worker. It returns when all
// are made.
func newTeam(c context.Context, w *rpc.Worker, s sizes, t team, inFlight int) (*pipeline, error) {
	p, all, err := newStages(w.Context(c), w, plan{Sizes: s, Team: t}, inFlight)
	for _, ref := range all {
		ref.Release()
	}
	return p, err
}

// newTwin gathers the same stages of all pipelines. Parameters are those of the first one.
func newTwin(c context.Context, w *rpc.Worker, p plan, params []*autodiff.Tensor) (t *twin, err error) {
	t = &twin{}
	var names []string
	for k := range p.Team.Pipelines {
		names = append(names, w.Workers()[k*len(p.Sizes.Blocks)+p.Index].Name)
	}
	if t.g, err = collective.Open(c, w, fmt.Sprintf("stage %d", p.Index), names...); err != nil {
		return nil, err
	}
	if t.replicas, err = parallel.Replicate(c, t.g, params, parallel.Config{}); err != nil {
		return nil, err
	}
	if t.opt, err = optim.New(rule(p.Team.LR), params...); err == nil {
		t.opt.SetSchedule(rates(p.Team.Steps))
	}
	return t, err
}

// mean takes the gradients that the pass has left at this stage, makes of them the mean over all
// pipelines' micro-batches, and gives the square of its norm.
func mean(c context.Context, s *stage, micros int) (square float64, err error) {
	own, err := ctx.Gradients(c)
	if err != nil {
		return 0, err
	}
	grads, err := s.twin.replicas.Combine(c, own, micros)
	if err != nil {
		return 0, err
	}
	norm, err := s.twin.opt.GradNorm(grads)
	s.twin.mu.Lock()
	defer s.twin.mu.Unlock()
	s.twin.grads = grads
	return norm * norm, err
}

// step steps the stage's parameters.
func step(_ context.Context, s *stage, factor float64) (struct{}, error) {
	s.twin.mu.Lock()
	defer s.twin.mu.Unlock()
	grads := s.twin.grads
	s.twin.grads = nil
	defer s.twin.opt.Advance()
	return struct{}{}, s.twin.opt.StepScaled(grads, factor)
}

// stepTogether steps all stages of all pipelines after the backwards of a pass, by gradients whose
// norm is clipped over all stages. It gives the mean of the losses of all pipelines.
func (p *pipeline) stepTogether(c context.Context, loss float64, micros int) (float64, error) {
	squares, err := atAll(p, func(s *stage) (float64, error) { return mean(c, s, micros) }, func(at rpc.RRef[*stage]) (float64, error) {
		return stageMean.Call(c, at, micros)
	})
	if err != nil {
		return 0, err
	}
	norm := 0.0
	for _, square := range squares {
		norm += square
	}
	factor, err := optim.ClipFactor(math.Sqrt(norm), clip)
	if err != nil {
		return 0, err
	}
	losses := []float64{loss}
	if err := collective.AllReduce(c, p.first.twin.g, losses, collective.Mean); err != nil {
		return 0, err
	}
	_, err = atAll(p, func(s *stage) (struct{}, error) { return step(c, s, factor) }, func(at rpc.RRef[*stage]) (struct{}, error) {
		return stageStep.Call(c, at, factor)
	})
	return losses[0], err
}

// atAll does something at all stages at once.
func atAll[T any](p *pipeline, here func(s *stage) (T, error), there func(at rpc.RRef[*stage]) (T, error)) ([]T, error) {
	out, errs := make([]T, 1+len(p.others)), make([]error, 1+len(p.others))
	var all sync.WaitGroup
	for i, at := range p.others {
		all.Go(func() { out[i+1], errs[i+1] = there(at) })
	}
	out[0], errs[0] = here(p.first)
	all.Wait()
	return out, errors.Join(errs...)
}
