package main

import (
	"context"
	"fmt"
	"math"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
)

// api is what every worker serves.
type api struct {
	move  *rpc.Func[int, moving]           // a parameter for its new owner
	fetch *rpc.Func[int, *autodiff.Tensor] // a parameter's value: gradients of it come back
	loss  *rpc.Func[int, *autodiff.Tensor] // of this worker's rows of a step
	apply *rpc.Func[made, none]            // the pass's gradients to the parameters that are here
	save  *rpc.Func[none, none]            // a checkpoint, beside the training
	end   *rpc.Func[none, none]            // the epoch is over
}

type none = struct{}

// made is a step whose gradients are there.
type made struct {
	Step int
	Loss float64
	Mark *mark // nil: the workers are those of the step before
}

func (e *epoch) serve() []rpc.Function {
	e.api = api{
		move:  rpc.Define("move", e.moved),
		fetch: rpc.Define("fetch", e.fetched),
		loss:  rpc.Define("loss", e.lossOf),
		apply: rpc.Define("apply", e.applied),
		save:  rpc.Define("save", e.saving),
		end:   rpc.Define("end", e.ending),
	}
	return []rpc.Function{e.move, e.fetch, e.loss, e.apply, e.save, e.end}
}

// with does something with what is here, as soon as that is there: others may be faster than this
// worker.
func (e *epoch) with(c context.Context, do func(s *shard) error) error {
	select {
	case <-e.ready:
	case <-c.Done():
		return context.Cause(c)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return do(&e.now)
}

// pass is one step in a pass of all workers: each computes the loss of its rows, for which it
// fetches the parameters from where they are. So their gradients come together there, and each
// worker steps its own.
func (e *epoch) pass(c context.Context) error {
	m := made{Step: e.step()}
	losses := make([]*rpc.Future[*autodiff.Tensor], e.World)
	for rank := range losses {
		losses[rank] = e.loss.Async(c, workerName(rank), m.Step)
	}
	parts, err := rpc.WaitAll(c, losses...)
	if err != nil {
		return err
	}
	total := parts[0]
	for _, part := range parts[1:] {
		total = autodiff.Add(total, part)
	}
	if err := ctx.Backward(c, total); err != nil {
		return err
	}
	if m.Loss, err = total.Item(); err != nil {
		return err
	}
	if math.IsNaN(m.Loss) || math.IsInf(m.Loss, 0) {
		return elastic.Final(fmt.Errorf("the loss is %v; a smaller --lr than %g may help", m.Loss, e.lr))
	}
	m.Mark = e.out.began(m.Step)
	if err := call(c, e.World, e.apply, m); err != nil {
		return err
	}
	e.out.made(m.Step+1, m.Loss)
	return nil
}

// lossOf is the loss of this worker's rows of a step, as its part in the mean over all.
func (e *epoch) lossOf(c context.Context, step int) (*autodiff.Tensor, error) {
	rows := e.rows(step)
	from, to := share(len(rows), e.Rank, e.World)
	if from == to { // there are more workers than rows
		return autodiff.Scalar[float32](0), nil
	}
	params, err := e.values(c)
	if err != nil {
		return nil, err
	}
	x, y := e.data.Train.Batch(rows[from:to])
	loss := nn.CrossEntropy(logits(params, ctx.Own(c, x)), ctx.Own(c, y))
	return autodiff.Scale(loss, float64(to-from)/float64(len(rows))), nil
}

// values are all parameters, fetched at once.
func (e *epoch) values(c context.Context) ([]*autodiff.Tensor, error) {
	values := make([]*rpc.Future[*autodiff.Tensor], e.count)
	for k := range values {
		values[k] = e.fetch.Async(c, workerName(k%e.World), k)
	}
	return rpc.WaitAll(c, values...)
}

func (e *epoch) fetched(c context.Context, k int) (value *autodiff.Tensor, err error) {
	err = e.with(c, func(s *shard) error {
		if s.params[k] == nil {
			return fmt.Errorf("parameter %d is not here", k)
		}
		value = s.params[k].value
		return nil
	})
	return value, err
}

// applied steps the parameters that are here.
func (e *epoch) applied(c context.Context, m made) (none, error) {
	grads, err := ctx.Gradients(c)
	if err != nil {
		return none{}, err
	}
	return none{}, e.with(c, func(s *shard) error {
		for _, p := range s.params {
			if err := p.opt.Step(grads); err != nil {
				return err
			}
		}
		s.step = m.Step + 1
		s.Losses = append(s.Losses[:m.Step], m.Loss)
		if m.Mark != nil {
			s.Marks = append(s.Marks, *m.Mark)
		}
		return nil
	})
}

// accuracy is the share of the test rows that are recognised.
func (e *epoch) accuracy(c context.Context, w *rpc.Worker) (part float64, err error) {
	err = w.Pass(c, func(c context.Context) error {
		params, err := e.values(ctx.NoGrad(c))
		if err != nil {
			return err
		}
		x, y := e.data.Test.All()
		part, err = nn.Accuracy(logits(params, ctx.Own(c, x)), y)
		return err
	})
	return part, err
}

// ending lets this worker leave; at the end of the training, when its part of the last checkpoint
// is written.
func (e *epoch) ending(context.Context, none) (none, error) {
	defer close(e.ended)
	if e.step() < e.steps() {
		return none{}, nil
	}
	return none{}, e.saves.wait()
}

func (e *epoch) all(c context.Context, f *rpc.Func[none, none]) error {
	return call(c, e.World, f, none{})
}

// call calls a function on all workers at once.
func call[In any](c context.Context, world int, f *rpc.Func[In, none], in In) error {
	calls := make([]*rpc.Future[none], world)
	for rank := range calls {
		calls[rank] = f.Async(c, workerName(rank), in)
	}
	_, err := rpc.WaitAll(c, calls...)
	return err
}

func workerName(rank int) string { return fmt.Sprint("worker", rank) }
