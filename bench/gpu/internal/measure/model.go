package measure

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
)

type node = *gorgonia.Node

type tensors = []*autodiff.Tensor

// model is a loss of parameters, which have names, and a batch.
type model struct {
	params tensors
	names  []string
	kinks  bool // it has a ReLU, or a maximum
	batch  tensors
	loss   func(params, batch tensors) *autodiff.Tensor
	rule   optim.Rule
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(1, seed)) }

// on is the model on a device.
func (m model) on(dev device.Device) model {
	m.params, m.batch = moved(m.params, dev), moved(m.batch, dev)
	for _, p := range m.params {
		p.RequireGrad()
	}
	return m
}

func moved(ts tensors, dev device.Device) tensors {
	out := make(tensors, len(ts))
	for i, t := range ts {
		out[i] = autodiff.To(t.Detach(), dev)
	}
	return out
}

// stepper is a training step: forward, backward, optimizer. What it makes is freed at its end. It
// gives the loss where that is wanted, which waits for it.
func (m model) stepper() (step func(want bool) (float64, error), err error) {
	opt, err := optim.New(m.rule, m.params...)
	if err != nil {
		return nil, err
	}
	return func(want bool) (float64, error) {
		arena := autodiff.NewArena("step")
		defer arena.Free()
		batch, err := m.adopted(arena)
		if err != nil {
			return 0, err
		}
		loss := m.loss(m.params, batch)
		grads, err := autodiff.Backward(loss)
		if err != nil {
			return 0, err
		}
		defer grads.Free()
		if err := opt.Step(grads.All()); err != nil || !want {
			return 0, err
		}
		return loss.Item()
	}, nil
}

// adopted is the batch as a step's own.
func (m model) adopted(arena *autodiff.Arena) (tensors, error) {
	batch := make(tensors, len(m.batch))
	for i, t := range m.batch {
		batch[i] = t.Detach()
		if err := arena.Adopt(batch[i]); err != nil {
			return nil, err
		}
	}
	return batch, nil
}

// losses are those of some steps.
func (m model) losses(steps int) ([]float64, error) {
	step, err := m.stepper()
	if err != nil {
		return nil, err
	}
	all := make([]float64, steps)
	for k := range all {
		if all[k], err = step(true); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// mlpSize is how large a network is: widths of five layers' ends, or of four.
type mlpSize struct {
	rows   int
	widths []int
}

// linears are the parameters of the layers between widths.
func linears(src *rand.Rand, widths ...int) (out tensors) {
	for k := range len(widths) - 1 {
		out = append(out, nn.NewLinear(src, widths[k], widths[k+1]).Params()...)
	}
	return out
}

// linearNames are their names.
func linearNames(widths ...int) (out []string) {
	for k := range len(widths) - 1 {
		out = append(out, fmt.Sprintf("layer %d weight", k+1), fmt.Sprintf("layer %d bias", k+1))
	}
	return out
}

func labels(n, classes int) *autodiff.Tensor { return autodiff.New(labelled(n, classes)) }

func labelled(n, classes int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i * 7 % classes)
	}
	return ids
}

// The parts of the networks, as functions: what a worker of two has.
var (
	smallHead = autodiff.Define("head", func(g *autodiff.Graph, x, w1, b1, w2, b2 node) node {
		return g.ReLU(g.Linear(g.ReLU(g.Linear(x, w1, b1)), w2, b2))
	})
	smallTail = autodiff.Define("tail", func(g *autodiff.Graph, h, w, b, y node) node { return g.CrossEntropy(g.Linear(h, w, b), y) })
	smallMLP  = autodiff.Define("small MLP", func(g *autodiff.Graph, x, w1, b1, w2, b2, w3, b3, y node) node {
		h := g.ReLU(g.Linear(g.ReLU(g.Linear(x, w1, b1)), w2, b2))
		return g.CrossEntropy(g.Linear(h, w3, b3), y)
	})
	largeHead = autodiff.Define("head", func(g *autodiff.Graph, x, w1, b1, w2, b2 node) node {
		return g.GELU(g.Linear(g.GELU(g.Linear(x, w1, b1)), w2, b2))
	})
	largeTail = autodiff.Define("tail", func(g *autodiff.Graph, h, w3, b3, w4, b4, y node) node {
		return meanSquare(g, g.Linear(g.GELU(g.Linear(h, w3, b3)), w4, b4), y)
	})
	largeMLP = autodiff.Define("large MLP", func(g *autodiff.Graph, x, w1, b1, w2, b2, w3, b3, w4, b4, y node) node {
		h := g.GELU(g.Linear(g.GELU(g.Linear(x, w1, b1)), w2, b2))
		return meanSquare(g, g.Linear(g.GELU(g.Linear(h, w3, b3)), w4, b4), y)
	})
)

func meanSquare(g *autodiff.Graph, x, y node) node {
	d := g.Sub(x, y)
	return g.Mean(g.Mul(d, d))
}

// newSmall is a classifier with ReLU, stepped by SGD.
func newSmall(s mlpSize) model {
	return model{
		params: linears(source(1), s.widths...), names: linearNames(s.widths...), kinks: true,
		batch: tensors{autodiff.NormalFrom(source(2), 1, s.rows, s.widths[0]), labels(s.rows, s.widths[3])},
		loss: func(p, in tensors) *autodiff.Tensor {
			return smallMLP.Call(slices.Concat(in[:1], p, in[1:])...)
		},
		rule: optim.SGD{LR: 0.01},
	}
}

// newLarge is a regression with GELU, stepped by AdamW.
func newLarge(s mlpSize) model {
	return model{
		params: linears(source(3), s.widths...), names: linearNames(s.widths...),
		batch: tensors{autodiff.NormalFrom(source(4), 1, s.rows, s.widths[0]), autodiff.NormalFrom(source(5), 1, s.rows, s.widths[4])},
		loss: func(p, in tensors) *autodiff.Tensor {
			return largeMLP.Call(slices.Concat(in[:1], p, in[1:])...)
		},
		rule: optim.AdamW{LR: 1e-4},
	}
}
