package main

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/examples/internal/place"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// sizes of the network: features → hidden → hidden/2 → classes.
type sizes struct {
	Features, Hidden, Classes int
	Seed                      uint64
}

// newHead is the first half: one hidden layer.
func newHead(s sizes) nn.Sequential {
	src := rand.New(rand.NewPCG(s.Seed, 2))
	return nn.Sequential{nn.NewLinear(src, s.Features, s.Hidden), nn.Activation(autodiff.ReLU)}
}

// newTail is the second half: another hidden layer and the logits.
func newTail(s sizes) nn.Sequential {
	src := rand.New(rand.NewPCG(s.Seed, 3))
	return nn.NewMLP(src, autodiff.ReLU, s.Hidden, max(s.Hidden/2, 1), s.Classes)
}

func rule(lr float64) optim.Rule { return optim.SGD{LR: lr, Momentum: momentum, WeightDecay: decay} }

const (
	momentum = 0.9
	decay    = 5e-4
)

// model is the network with its optimizer, wherever its halves are.
type model interface {
	// step trains on one batch and gives the loss before the step.
	step(c context.Context, x, y *autodiff.Tensor) (float64, error)
	// accuracy is the share of rows whose largest logit is the class.
	accuracy(c context.Context, x, y *autodiff.Tensor) (float64, error)
}

// whole is the network in one process.
type whole struct {
	net nn.Sequential
	opt *optim.Local
	dev device.Device
}

func newWhole(s sizes, r optim.Rule, dev device.Device) (*whole, error) {
	m := &whole{net: append(newHead(s), newTail(s)...), dev: dev}
	if err := nn.To(m.net, dev); err != nil {
		return nil, err
	}
	var err error
	m.opt, err = optim.New(r, m.net.Params()...)
	return m, err
}

func (m *whole) step(_ context.Context, x, y *autodiff.Tensor) (float64, error) {
	arena := autodiff.NewArena("step") // owns what the step makes
	defer arena.Free()
	if err := errors.Join(arena.Adopt(x), arena.Adopt(y)); err != nil {
		return 0, err
	}
	loss := nn.CrossEntropy(m.net.Forward(autodiff.To(x, m.dev)), autodiff.To(y, m.dev))
	grads, err := autodiff.Backward(loss)
	if err != nil {
		return 0, err
	}
	if err := m.opt.Step(grads.All()); err != nil {
		return 0, err
	}
	return loss.Item()
}

func (m *whole) accuracy(_ context.Context, x, y *autodiff.Tensor) (float64, error) {
	return nn.Accuracy(m.net.Forward(autodiff.To(x, m.dev)), y)
}

// The functions that the worker of the second half serves.
var (
	makeTail = rpc.Define("digits.tail", func(c context.Context, s sizes) (nn.Sequential, error) {
		w, _ := rpc.FromContext(c)
		net := newTail(s)
		return net, nn.To(net, place.Of(w))
	})
	tailParams = rpc.Define("digits.params", func(c context.Context, tail rpc.RRef[nn.Sequential]) ([]optim.Param, error) {
		net, err := tail.LocalValue(c)
		if err != nil {
			return nil, err
		}
		return references(c, net.Params())
	})
	tailForward = rpc.Define("digits.forward", func(c context.Context, in tailInput) (*autodiff.Tensor, error) {
		net, err := in.Tail.LocalValue(c)
		if err != nil {
			return nil, err
		}
		return net.Forward(in.X), nil
	})
)

type tailInput struct {
	Tail rpc.RRef[nn.Sequential]
	X    *autodiff.Tensor
}

func functions() []rpc.Function {
	return append(optim.Functions(), makeTail, tailParams, tailForward)
}

// references makes this worker the owner of tensors that others may refer to.
func references(c context.Context, ts []*autodiff.Tensor) ([]optim.Param, error) {
	refs := make([]optim.Param, len(ts))
	for i, t := range ts {
		var err error
		if refs[i], err = rpc.NewRRef(c, t); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

// halves is the network with its first half here and its second on another worker.
type halves struct {
	w    *rpc.Worker
	peer string
	head nn.Sequential
	tail rpc.RRef[nn.Sequential]
	opt  *optim.Distributed
}

func newHalves(c context.Context, w *rpc.Worker, peer string, s sizes, lr float64) (*halves, error) {
	c = w.Context(c)
	m := &halves{w: w, peer: peer, head: newHead(s), tail: makeTail.Remote(c, peer, s)}
	if err := nn.To(m.head, place.Of(w)); err != nil {
		return nil, err
	}
	params, err := references(c, m.head.Params())
	if err != nil {
		return nil, err
	}
	theirs, err := tailParams.Call(c, peer, m.tail)
	if err != nil {
		return nil, err
	}
	m.opt, err = optim.NewDistributed(c, rule(lr), append(params, theirs...)...)
	return m, err
}

func (m *halves) forward(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
	return tailForward.Call(c, m.peer, tailInput{m.tail, m.head.Forward(autodiff.To(ctx.Own(c, x), place.Of(m.w)))})
}

func (m *halves) step(c context.Context, x, y *autodiff.Tensor) (value float64, err error) {
	err = m.w.Pass(c, func(c context.Context) error {
		logits, err := m.forward(c, x)
		if err != nil {
			return err
		}
		loss := nn.CrossEntropy(logits, autodiff.To(ctx.Own(c, y), place.Of(m.w)))
		if err := ctx.Backward(c, loss); err != nil {
			return err
		}
		if err := m.opt.Step(c); err != nil {
			return err
		}
		value, err = loss.Item()
		return err
	})
	return value, err
}

func (m *halves) accuracy(c context.Context, x, y *autodiff.Tensor) (share float64, err error) {
	err = m.w.Pass(c, func(c context.Context) error {
		logits, err := m.forward(ctx.NoGrad(c), x)
		if err != nil {
			return err
		}
		share, err = nn.Accuracy(logits, y)
		return err
	})
	return share, err
}
