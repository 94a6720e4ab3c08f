package main

import (
	"context"
	"errors"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// stage is a part of the model on the worker that computes it.
type stage struct {
	*layers
	desk  desk
	index int
	sizes sizes
	solo  solo
	spend func(work) // tests let it take time
	twin  *twin      // of several pipelines; nil in one
	// next hands activations to the stage that follows; nil in the last one.
	next func(c context.Context, in hop) (*autodiff.Tensor, error)
}

// hop is a micro-batch on its way: tokens into the first stage, activations into the others.
// Without labels the last stage gives logits in place of the loss. It goes no further than stage
// Until, which gives its activations. With a Part, the last stage starts the backward of that part
// of the loss as soon as it has it: then what comes back has been there and back again, and no
// stage waits for the first one to hear of the loss and say so.
type hop struct {
	X, Labels *autodiff.Tensor
	Until     int
	Part      float64
}

// The functions that the workers serve.
var (
	makeStage    = rpc.Define("pipeline.stage", build)
	stageParams  = rpc.DefineMethod("pipeline.params", references)
	stageForward = rpc.DefineMethod("pipeline.forward", forward)
	stageBusy    = rpc.DefineMethod("pipeline.busy", func(_ context.Context, s *stage, _ struct{}) (busy, error) { return s.desk.busy(), nil })
	stageAlone   = rpc.DefineMethod("pipeline.alone", alone)
)

func functions() []rpc.Function {
	return append(optim.Functions(), makeStage, stageParams, stageForward, stageBusy, stageAlone, stageMean, stageStep)
}

// plan says which stage to make.
type plan struct {
	Sizes sizes
	Index int
	Next  rpc.RRef[*stage] // nothing for the last stage
	Team  team             // that the pipeline is of
}

func build(c context.Context, p plan) (*stage, error) {
	w, _ := rpc.FromContext(c)
	l, err := newLayers(p.Sizes, p.Index, place.Of(w))
	if err != nil {
		return nil, err
	}
	s := &stage{layers: l, index: p.Index, sizes: p.Sizes}
	if s.embedding != nil { // its gradient is the last that a backward computes here
		if _, err := s.embedding[0].OnAccumulated(func(_, _ *autodiff.Tensor) error {
			defer s.desk.done()
			return place.Settle(s.dev)
		}); err != nil {
			return nil, err
		}
	}
	if p.Team.Pipelines > 1 {
		if s.twin, err = newTwin(c, w, p, l.params()); err != nil {
			return nil, err
		}
	}
	if p.Index < len(p.Sizes.Blocks)-1 {
		s.next = func(c context.Context, in hop) (*autodiff.Tensor, error) { return stageForward.Call(c, p.Next, in) }
	}
	return s, nil
}

// references are the parameters, for the optimizer.
func references(c context.Context, s *stage, _ struct{}) ([]optim.Param, error) {
	var refs []optim.Param
	for _, p := range s.params() {
		r, err := rpc.NewRRef(c, p)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

// forward computes this stage and hands on what comes out, straight to the worker of the next
// stage.
func forward(c context.Context, s *stage, in hop) (*autodiff.Tensor, error) {
	y, err := s.compute(c, in)
	switch {
	case err != nil:
		return nil, err
	case s.next == nil && in.Part > 0:
		return y.Detach(), ctx.Backward(c, autodiff.Scale(y, in.Part))
	case s.next == nil || s.index == in.Until:
		return y, nil
	}
	in.X = y
	return s.next(c, in)
}

// compute runs the stage at its desk. A GPU is waited for there: its work is done in the order in
// which it is asked for, so a backward that comes would stand behind the forwards.
func (s *stage) compute(c context.Context, in hop) (*autodiff.Tensor, error) {
	turn, err := s.desk.waitTurn(c, forwards)
	if err != nil {
		return nil, err
	}
	y := s.layers.forward(in.X, in.Labels)
	if s.spend != nil {
		s.spend(forwards)
	}
	err = errors.Join(y.Err(), place.Settle(s.dev))
	s.desk.leave(turn)
	if !ctx.Recording(c) || err != nil {
		return y, err
	}
	return y, s.backAtDesk(c, in.X, y)
}

// backAtDesk has the backward take the desk when the gradient of the result is there, and leave it
// when that of the input is, or when the pass ends.
func (s *stage) backAtDesk(c context.Context, x, y *autodiff.Tensor) error {
	pass, _ := ctx.From(c) // it is recording
	var turn int
	if _, err := y.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor {
		var err error
		if turn, err = s.desk.waitTurn(pass.Life(), backwards); err != nil {
			return autodiff.Failed(err)
		}
		context.AfterFunc(pass.Life(), func() { s.desk.leave(turn) })
		if s.spend != nil {
			s.spend(backwards)
		}
		return nil
	}); err != nil {
		return err
	}
	if s.embedding != nil { // the input is tokens, and has no gradient: see build
		return nil
	}
	_, err := x.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor {
		defer s.desk.leave(turn)
		if err := place.Settle(s.dev); err != nil {
			return autodiff.Failed(err)
		}
		return nil
	})
	return err
}
