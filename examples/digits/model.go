package main

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

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
	Dropout                   float64 // of the hidden layers; 0: none
}

// network is both halves, or one of them: the names of what is in it ("Head.0.W") are the same
// wherever it is.
type network struct{ Head, Tail nn.Sequential }

// Forward goes through both halves.
func (n network) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	return n.Tail.Forward(n.Head.Forward(x))
}

// Params are the head's and the tail's.
func (n network) Params() []*autodiff.Tensor { return append(n.Head.Params(), n.Tail.Params()...) }

// newHead is the first half: one hidden layer.
func newHead(s sizes) nn.Sequential {
	src := rand.New(rand.NewPCG(s.Seed, 2))
	return s.addDropout(src, nn.Sequential{nn.NewLinear(src, s.Features, s.Hidden), nn.Activation(autodiff.ReLU)})
}

// newTail is the second half: another hidden layer and the logits.
func newTail(s sizes) nn.Sequential {
	src := rand.New(rand.NewPCG(s.Seed, 3))
	return s.addDropout(src, nn.NewMLP(src, autodiff.ReLU, s.Hidden, max(s.Hidden/2, 1), s.Classes))
}

// addDropout adds a dropout behind the first activation.
func (s sizes) addDropout(src *rand.Rand, half nn.Sequential) nn.Sequential {
	if s.Dropout == 0 {
		return half
	}
	return slices.Insert(half, 2, nn.Layer(nn.NewDropout(src, s.Dropout)))
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
	// optimizer has the learning rates and the schedule.
	optimizer() scheduled
	// keep is all that the next step depends on, and restore has the model go on from it.
	keep(c context.Context) (kept, error)
	restore(c context.Context, k kept) error
}

// scheduled is an optimizer of any kind.
type scheduled interface {
	SetSchedule(optim.Schedule)
	Advance()
}

// kept is what a checkpoint holds of a model.
type kept struct {
	Net   map[string]*autodiff.Tensor
	Optim optim.State
}

// whole is the network in one process.
type whole struct {
	net network
	opt *optim.Local
	dev device.Device
}

func newWhole(s sizes, r optim.Rule, dev device.Device) (*whole, error) {
	m := &whole{net: network{newHead(s), newTail(s)}, dev: dev}
	if err := nn.To(m.net, dev); err != nil {
		return nil, err
	}
	var err error
	m.opt, err = optim.NewGroups(optim.Named(r, nn.Parameters(m.net)))
	return m, err
}

func (m *whole) optimizer() scheduled { return m.opt }

func (m *whole) keep(context.Context) (k kept, err error) {
	k.Net = maps.Collect(nn.State(m.net))
	k.Optim, err = m.opt.State()
	return k, err
}

func (m *whole) restore(_ context.Context, k kept) error {
	return errors.Join(nn.Load(m.net, k.Net), m.opt.Load(k.Optim))
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
	nn.Eval(m.net)
	defer nn.Train(m.net)
	return nn.Accuracy(m.net.Forward(autodiff.To(x, m.dev)), y)
}

// The functions that the worker of the second half serves.
var (
	makeTail = rpc.Define("digits.tail", func(c context.Context, s sizes) (nn.Sequential, error) {
		w, _ := rpc.FromContext(c)
		net := newTail(s)
		return net, nn.To(net, place.Of(w))
	})
	tailParams = rpc.Define("digits.params", func(c context.Context, tail rpc.RRef[nn.Sequential]) (map[string]optim.Param, error) {
		net, err := tail.LocalValue(c)
		if err != nil {
			return nil, err
		}
		return references(c, network{Tail: net})
	})
	tailForward = rpc.Define("digits.forward", func(c context.Context, in tailInput) (*autodiff.Tensor, error) {
		net, err := in.Tail.LocalValue(c)
		if err != nil {
			return nil, err
		}
		net.SetTraining(!in.Eval)
		return net.Forward(in.X), nil
	})
	tailKeep = rpc.Define("digits.keep", func(c context.Context, tail rpc.RRef[nn.Sequential]) (map[string]*autodiff.Tensor, error) {
		net, err := tail.LocalValue(c)
		if err != nil {
			return nil, err
		}
		values := map[string]*autodiff.Tensor{}
		for name, t := range nn.State(network{Tail: net}) {
			values[name] = t.Detach()
		}
		return values, nil
	})
	tailRestore = rpc.Define("digits.restore", func(c context.Context, in tailValues) (struct{}, error) {
		net, err := in.Tail.LocalValue(c)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, nn.Load(network{Tail: net}, in.Values)
	})
)

type tailInput struct {
	Tail rpc.RRef[nn.Sequential]
	X    *autodiff.Tensor
	Eval bool
}

type tailValues struct {
	Tail   rpc.RRef[nn.Sequential]
	Values map[string]*autodiff.Tensor
}

func functions() []rpc.Function {
	return append(optim.Functions(), makeTail, tailParams, tailForward, tailKeep, tailRestore)
}

// references makes this worker the owner of parameters that others may refer to, by name.
func references(c context.Context, net network) (map[string]optim.Param, error) {
	refs := map[string]optim.Param{}
	for name, t := range nn.Parameters(net) {
		var err error
		if refs[name], err = rpc.NewRRef(c, t); err != nil {
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

func newHalves(c context.Context, w *rpc.Worker, peer string, s sizes, r optim.Rule) (*halves, error) {
	c = w.Context(c)
	m := &halves{w: w, peer: peer, head: newHead(s), tail: makeTail.Remote(c, peer, s)}
	if err := nn.To(m.head, place.Of(w)); err != nil {
		return nil, err
	}
	params, err := references(c, network{Head: m.head})
	if err != nil {
		return nil, err
	}
	theirs, err := tailParams.Call(c, peer, m.tail)
	if err != nil {
		return nil, err
	}
	maps.Copy(params, theirs)
	m.opt, err = optim.NewDistributedGroups(c, optim.Named(r, maps.All(params)))
	return m, err
}

func (m *halves) optimizer() scheduled { return m.opt }

func (m *halves) keep(c context.Context) (k kept, err error) {
	c = m.w.Context(c)
	if k.Net, err = tailKeep.Call(c, m.peer, m.tail); err != nil {
		return k, err
	}
	maps.Insert(k.Net, nn.State(network{Head: m.head}))
	k.Optim, err = m.opt.State(c)
	return k, err
}

func (m *halves) restore(c context.Context, k kept) error {
	c = m.w.Context(c)
	head, tail := map[string]*autodiff.Tensor{}, map[string]*autodiff.Tensor{}
	for name, t := range k.Net {
		if strings.HasPrefix(name, "Tail.") {
			tail[name] = t
		} else {
			head[name] = t
		}
	}
	_, err := tailRestore.Call(c, m.peer, tailValues{m.tail, tail})
	return errors.Join(err, nn.Load(network{Head: m.head}, head), m.opt.Load(c, k.Optim))
}

// forward is in training, or in evaluation.
func (m *halves) forward(c context.Context, x *autodiff.Tensor, eval bool) (*autodiff.Tensor, error) {
	m.head.SetTraining(!eval)
	return tailForward.Call(c, m.peer, tailInput{m.tail, m.head.Forward(autodiff.To(ctx.Own(c, x), place.Of(m.w))), eval})
}

func (m *halves) step(c context.Context, x, y *autodiff.Tensor) (value float64, err error) {
	err = m.w.Pass(c, func(c context.Context) error {
		logits, err := m.forward(c, x, false)
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
		logits, err := m.forward(ctx.NoGrad(c), x, true)
		if err != nil {
			return err
		}
		share, err = nn.Accuracy(logits, y)
		return err
	})
	return share, err
}
